// node-postgres: types, prepared statements, errors, transactions, cancel.
const assert = require('node:assert/strict');
const net = require('node:net');
const { Client, Pool } = require('pg');

const url = new URL(process.env.DRIVER_URL);
const config = {
  host: url.hostname,
  port: Number(url.port),
  user: decodeURIComponent(url.username),
  password: decodeURIComponent(url.password),
  database: decodeURIComponent(url.pathname.slice(1)),
  ssl: process.env.DRIVER_PLAIN ? false : { rejectUnauthorized: false, servername: 'localhost' },
};

const values = [
  ['bool', true, true],
  ['int2', -32768, -32768],
  ['int4', 2147483647, 2147483647],
  ['int8', '-9223372036854775808', '-9223372036854775808'],
  ['float4', 1.5, 1.5],
  ['float8', 1 / 3, 1 / 3],
  ['numeric', '-12345678901234567890.0123456789', '-12345678901234567890.0123456789'],
  ['text', 'grüße, 🐭\tand\nlines', 'grüße, 🐭\tand\nlines'],
  ['varchar(20)', 'short', 'short'],
  ['char(8)', 'padded', 'padded  '],
  ['bytea', Buffer.from([0, 1, 254, 255, 92]), Buffer.from([0, 1, 254, 255, 92])],
  ['timestamptz', new Date('2024-07-01T12:00:00.123Z'), new Date('2024-07-01T12:00:00.123Z')],
  ['uuid', '12345678-9abc-def0-1234-56789abcdef0', '12345678-9abc-def0-1234-56789abcdef0'],
  ['time', '23:59:59.999999', '23:59:59.999999'],
  ['json', { b: [1, null], a: 'x' }, { b: [1, null], a: 'x' }],
  ['jsonb', { b: [1, null], a: 'x' }, { b: [1, null], a: 'x' }],
  ['int4[]', [1, null, -3], [1, null, -3]],
  ['text[]', ['a', 'quote " and \\', null, ''], ['a', 'quote " and \\', null, '']],
];

async function types(client) {
  for (const [index, [name, input, expected]] of values.entries()) {
    const table = `node_${index}`;
    await client.query(`DROP TABLE IF EXISTS ${table}`);
    await client.query(`CREATE TABLE ${table} (id int PRIMARY KEY, v ${name})`);
    const insert = { name: `insert ${name}`, text: `INSERT INTO ${table} VALUES ($1, $2)` };
    await client.query({ ...insert, values: [1, input] });
    await client.query({ ...insert, values: [2, null] });
    const text = await client.query(`SELECT v FROM ${table} ORDER BY id`);
    assert.deepEqual(text.rows.map((row) => row.v), [expected, null], name);
    await client.query(`DROP TABLE ${table}`);
  }
  const { rows } = await client.query("SELECT date '2024-02-29' AS d, interval '3 days 04:00:01' AS i");
  assert.equal(rows[0].i.days, 3);
  assert.equal(rows[0].d.getDate(), 29);
  // The few types node-postgres can read in binary.
  const binary = await client.query({ text: 'SELECT 7::int4 AS i, 1.5::float8 AS f, true AS b', binary: true });
  assert.deepEqual({ ...binary.rows[0] }, { i: 7, f: 1.5, b: true });
}

async function errors(client) {
  await client.query('CREATE TABLE node_u (id serial PRIMARY KEY, v int UNIQUE)');
  await client.query('INSERT INTO node_u (v) VALUES ($1)', [1]);
  await assert.rejects(client.query('INSERT INTO node_u (v) VALUES ($1)', [1]), { code: '23505' });
  await assert.rejects(client.query('SELEC 1'), { code: '42601' });
  await client.query('BEGIN');
  await assert.rejects(client.query('INSERT INTO node_u (v) VALUES (1)'), { code: '23505' });
  await assert.rejects(client.query('SELECT 1'), { code: '25P02' });
  await client.query('ROLLBACK');
  await client.query('DROP TABLE node_u');
}

async function cancel(client) {
  const running = client.query('SELECT pg_sleep(60)');
  await new Promise((resolve) => setTimeout(resolve, 300));
  // A cancel request is a connection of its own, with nothing but the key.
  const request = Buffer.alloc(16);
  [16, 80877102, client.processID, client.secretKey].forEach((word, index) => request.writeInt32BE(word, 4 * index));
  const socket = net.connect(config.port, config.host, () => socket.end(request));
  socket.on('error', () => {});
  await assert.rejects(running, { code: '57014' });
  assert.equal((await client.query('SELECT 1 AS one')).rows[0].one, 1);
}

(async () => {
  const client = new Client(config);
  await client.connect();
  await types(client);
  await errors(client);
  await cancel(client);
  await client.end();
  const pool = new Pool({ ...config, max: 5 });
  const results = await Promise.all([...Array(40).keys()].map((i) => pool.query('SELECT $1::int + 1 AS n', [i])));
  assert.deepEqual(results.map((result) => result.rows[0].n), [...Array(40).keys()].map((i) => i + 1));
  await pool.end();
  console.log('node-postgres: ok');
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
