// pgx: everything in binary, prepared statements, batches, binary COPY, errors, cancel.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "pgx: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func expect(condition bool, what string, args ...any) {
	if !condition {
		check(errors.New("not as expected"), fmt.Sprintf(what, args...))
	}
}

func numeric(text string) pgtype.Numeric {
	var value pgtype.Numeric
	check(value.Scan(text), "numeric")
	return value
}

func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DRIVER_URL"))
	check(err, "connect")
	defer conn.Close(ctx)
	check(conn.Ping(ctx), "ping")

	utc := time.Date(2024, 7, 1, 12, 0, 0, 1000, time.UTC)
	values := []struct {
		kind  string
		value any
	}{
		{"bool", true}, {"int2", int16(-32768)}, {"int4", int32(2147483647)}, {"int8", int64(-9223372036854775808)},
		{"float4", float32(1.5)}, {"float8", 1.0 / 3.0}, {"numeric", numeric("-12345678901234567890.0123456789")},
		{"text", "grüße, 🐭\tand\nlines"}, {"varchar(20)", "short"}, {"char(8)", "padded  "},
		{"bytea", []byte{0, 1, 254, 255}}, {"date", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
		{"time", pgtype.Time{Microseconds: 86399999999, Valid: true}},
		{"timestamp", time.Date(1999, 12, 31, 23, 59, 59, 123456000, time.UTC)}, {"timestamptz", utc},
		{"interval", pgtype.Interval{Months: 1, Days: 3, Microseconds: 5, Valid: true}},
		{"uuid", [16]byte{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"int4[]", []int32{1, 2, -3}}, {"text[]", []string{"a", "quote \" and \\", ""}},
		{"jsonb", map[string]any{"a": "x", "b": []any{1.0, nil, true}}}, {"json", map[string]any{"a": "x"}},
	}
	for index, entry := range values {
		table := fmt.Sprintf("go_%d", index)
		_, err = conn.Exec(ctx, "DROP TABLE IF EXISTS "+table)
		check(err, "drop")
		_, err = conn.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (id int PRIMARY KEY, v %s)", table, entry.kind))
		check(err, "create "+entry.kind)
		_, err = conn.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2), (2, NULL)", 1, entry.value)
		check(err, "insert "+entry.kind)
		target := reflect.New(reflect.TypeOf(entry.value))
		check(conn.QueryRow(ctx, "SELECT v FROM "+table+" WHERE id = $1", 1).Scan(target.Interface()), "read "+entry.kind)
		got, want := target.Elem().Interface(), entry.value
		if stamp, ok := got.(time.Time); ok {
			got, want = stamp.UTC(), want.(time.Time).UTC()
		}
		if _, ok := got.(pgtype.Numeric); ok {
			left, _ := got.(pgtype.Numeric).Value()
			right, _ := want.(pgtype.Numeric).Value()
			got, want = left, right
		}
		expect(reflect.DeepEqual(got, want), "%s: %v is not %v", entry.kind, got, want)
		_, err = conn.Exec(ctx, "DROP TABLE "+table)
		check(err, "drop")
	}

	_, err = conn.Exec(ctx, "CREATE TABLE go_u (id int PRIMARY KEY, v text, at timestamptz)")
	check(err, "create")
	rows := make([][]any, 3000)
	for i := range rows {
		rows[i] = []any{int32(i), fmt.Sprint("v", i), utc}
	}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"go_u"}, []string{"id", "v", "at"}, pgx.CopyFromRows(rows))
	check(err, "copy")
	expect(count == 3000, "copy of %d rows", count)
	_, err = conn.Exec(ctx, "INSERT INTO go_u VALUES ($1, 'x', now())", 7)
	var failure *pgconn.PgError
	expect(errors.As(err, &failure) && failure.Code == "23505" && failure.ConstraintName == "go_u_pkey", "unique violation: %v", err)

	batch := &pgx.Batch{}
	for i := 0; i < 100; i++ {
		batch.Queue("SELECT v FROM go_u WHERE id = $1", i)
	}
	results := conn.SendBatch(ctx, batch)
	for i := 0; i < 100; i++ {
		var v string
		check(results.QueryRow().Scan(&v), "batch")
		expect(v == fmt.Sprint("v", i), "batch row %d is %s", i, v)
	}
	check(results.Close(), "batch close")

	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	check(err, "begin")
	_, err = tx.Exec(ctx, "UPDATE go_u SET v = 'changed' WHERE id < $1", 10)
	check(err, "update")
	check(tx.Rollback(ctx), "rollback")
	var changed int64
	check(conn.QueryRow(ctx, "SELECT count(*) FROM go_u WHERE v = 'changed'").Scan(&changed), "count")
	expect(changed == 0, "rollback left %d rows", changed)
	_, err = conn.Exec(ctx, "DROP TABLE go_u")
	check(err, "drop")

	pid := conn.PgConn().PID()
	expect(pid != 0, "process id")
	go func() {
		time.Sleep(300 * time.Millisecond)
		_ = conn.PgConn().CancelRequest(ctx)
	}()
	_, err = conn.Exec(ctx, "SELECT pg_sleep(60)")
	expect(errors.As(err, &failure) && failure.Code == "57014", "cancel: %v", err)
	check(conn.Ping(ctx), "ping after cancel")
	fmt.Println("pgx: ok")
}
