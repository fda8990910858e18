// TypeORM on node-postgres: synchronize, generated migrations, relations, transactions, errors.
require("reflect-metadata");
const assert = require("node:assert");
const { DataSource, EntitySchema, In, Raw } = require("typeorm");

const id = { type: "int", primary: true, generated: true };
const User = new EntitySchema({
  name: "User",
  columns: {
    id,
    email: { type: "varchar", length: 100, unique: true },
    role: { type: "enum", enum: ["reader", "writer", "admin"], default: "reader" },
    settings: { type: "jsonb", default: {} },
    tags: { type: "text", array: true, default: [] },
    balance: { type: "numeric", precision: 12, scale: 2, default: 0 },
    created: { type: "timestamptz", createDate: true },
    version: { type: "int", version: true },
  },
  relations: { posts: { type: "one-to-many", target: "Post", inverseSide: "author", cascade: true } },
  checks: [{ name: "solvent", expression: '"balance" >= 0' }],
});
const Post = new EntitySchema({
  name: "Post",
  columns: {
    id: { type: "uuid", primary: true, generated: "uuid" },
    title: { type: "text" },
    views: { type: "bigint", default: 0 },
    draft: { type: "boolean", default: true },
    removed: { type: "timestamptz", nullable: true, deleteDate: true },
  },
  relations: {
    author: { type: "many-to-one", target: "User", inverseSide: "posts", onDelete: "CASCADE", nullable: false },
    labels: { type: "many-to-many", target: "Label", joinTable: true, cascade: true },
  },
  indices: [
    { name: "post_drafts", columns: ["title"], where: '"draft"' },
    { name: "post_author_title", columns: ["author", "title"], unique: true },
  ],
});
const Label = new EntitySchema({ name: "Label", columns: { id, name: { type: "varchar", unique: true } } });

// What the application looks like a release later.
const LaterLabel = new EntitySchema({
  name: "Label",
  columns: {
    id,
    name: { type: "varchar", unique: true },
    colour: { type: "enum", enum: ["red", "green"], nullable: true },
    rank: { type: "smallint", default: 1 },
  },
});

const options = (entities) => ({
  type: "postgres", url: process.env.DRIVER_URL.replace("sslmode=require", "sslmode=no-verify"),
  ssl: { rejectUnauthorized: false }, entities, uuidExtension: "pgcrypto", installExtensions: false,
});

async function code(promise) {
  try {
    await promise;
  } catch (error) {
    return error.driverError?.code ?? error;
  }
  return "nothing";
}

async function use(db) {
  const users = db.getRepository("User"), posts = db.getRepository("Post");
  const names = ["a", "b", "c"].map((name) => ({ name }));
  const labels = await db.getRepository("Label").save(names);
  for (let n = 0; n < 10; n++) {
    await users.save({
      email: `u${n}@example.org`, role: n ? "writer" : "admin", settings: { n, deep: { list: [1, n] } },
      tags: ["x", `t${n}`], balance: `${n}.50`,
      posts: [0, 1, 2].map((i) => ({ title: `post ${n}-${i}`, views: `${n * i}`, labels: labels.slice(0, i) })),
    });
  }
  const admin = await users.findOne({ where: { role: "admin" }, relations: { posts: { labels: true } } });
  assert.strictEqual(admin.posts.length, 3);
  assert.deepStrictEqual(admin.settings, { n: 0, deep: { list: [1, 0] } });
  assert.deepStrictEqual(admin.tags, ["x", "t0"]);
  assert.strictEqual(typeof admin.id, "number");
  const [page, total] = await posts.findAndCount({ order: { title: "DESC" }, skip: 5, take: 5, relations: { author: true } });
  assert.deepStrictEqual([total, page[0].title], [30, "post 8-0"]);
  const sums = await users.createQueryBuilder("u").leftJoin("u.posts", "p").select("u.email", "email")
    .addSelect("sum(p.views)", "views").groupBy("u.email").having("sum(p.views) > :least", { least: 10 })
    .orderBy("views", "DESC").limit(2).getRawMany();
  assert.deepStrictEqual(sums, [{ email: "u9@example.org", views: "27" }, { email: "u8@example.org", views: "24" }]);
  assert.strictEqual(await users.countBy({ settings: Raw((name) => `${name} @> '{"n": 4}'`) }), 1);
  assert.strictEqual(await users.countBy({ email: In(["u1@example.org", "u2@example.org", "none"]) }), 2);
  await users.createQueryBuilder().insert().values({ email: "u1@example.org", balance: "7" })
    .orUpdate(["balance"], ["email"]).execute();
  assert.strictEqual((await users.findOneBy({ email: "u1@example.org" })).balance, "7.00");
  assert.strictEqual(await code(users.insert({ email: "u1@example.org" })), "23505");
  assert.strictEqual(await code(users.insert({ email: "poor", balance: "-1" })), "23514");
  assert.strictEqual(await code(posts.insert({ title: "nobody's", author: { id: 99999 } })), "23503");
  assert.strictEqual(await code(users.insert({ email: "odd", role: "owner" })), "22P02");
  await posts.softDelete({ title: "post 3-1" });
  assert.strictEqual(await posts.count(), 29);
  await users.delete({ email: "u9@example.org" });
  assert.strictEqual(await posts.count(), 26);
  await assert.rejects(db.transaction(async (manager) => {
    await manager.save("Label", { name: "undone" });
    throw new Error("undone");
  }));
  await db.transaction("SERIALIZABLE", async (manager) => {
    const locked = await manager.findOne("User", { where: { id: admin.id }, lock: { mode: "pessimistic_write" } });
    locked.balance = "100.25";
    await manager.save("User", locked);
  });
  const after = await users.findOneBy({ id: admin.id });
  assert.deepStrictEqual([after.balance, after.version], ["100.25", 2]);
  assert.strictEqual(await db.getRepository("Label").count(), 3);
  let streamed = 0;
  for (const row of await posts.createQueryBuilder("p").where("p.draft").getMany()) streamed += row.title.length > 0;
  assert.strictEqual(streamed, 26);
}

async function differences(db) {
  const log = await db.driver.createSchemaBuilder().log();
  return log.upQueries.map((query) => query.query);
}

async function main() {
  let db = await new DataSource({ ...options([User, Post, Label]), dropSchema: true, synchronize: true }).initialize();
  assert.deepStrictEqual(await differences(db), []);
  await use(db);
  await db.destroy();
  db = await new DataSource(options([User, Post, LaterLabel])).initialize();
  assert.notDeepStrictEqual(await differences(db), []);
  await db.synchronize();
  assert.deepStrictEqual(await differences(db), []);
  assert.strictEqual(await db.getRepository("Post").count(), 26);
  await db.destroy();
  console.log("typeorm: synchronize twice, relations, transactions, errors");
}

main().catch((error) => {
  console.error("typeorm:", error);
  process.exit(1);
});
