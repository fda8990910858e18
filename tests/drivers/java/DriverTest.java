// The PostgreSQL JDBC driver: types, server-prepared statements in binary, fetch size, metadata, errors, cancel.
import java.math.BigDecimal;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.time.*;
import java.util.*;

public class DriverTest {
    static void expect(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    static Connection connect() throws Exception {
        URI uri = new URI(System.getenv("DRIVER_URL"));
        String[] login = uri.getRawUserInfo().split(":", 2);
        Properties properties = new Properties();
        properties.setProperty("user", URLDecoder.decode(login[0], StandardCharsets.UTF_8));
        properties.setProperty("password", URLDecoder.decode(login[1], StandardCharsets.UTF_8));
        properties.setProperty("sslmode", System.getenv("DRIVER_PLAIN") == null ? "require" : "prefer");
        properties.setProperty("prepareThreshold", "2");
        return DriverManager.getConnection("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath(), properties);
    }

    static void types(Connection connection) throws Exception {
        Object[][] values = {
            {"bool", true}, {"int2", -32768}, {"int4", 2147483647}, {"int8", Long.MIN_VALUE},
            {"float4", 1.5f}, {"float8", 1.0 / 3.0}, {"numeric", new BigDecimal("-12345678901234567890.0123456789")},
            {"text", "grüße, 🐭\tand\nlines"}, {"varchar(20)", "short"}, {"char(8)", "padded  "},
            {"date", LocalDate.of(2024, 2, 29)}, {"time", LocalTime.of(23, 59, 59, 999999000)},
            {"timestamp", LocalDateTime.of(1999, 12, 31, 23, 59, 59, 123456000)},
            {"timestamptz", OffsetDateTime.of(2024, 7, 1, 12, 0, 0, 1000, ZoneOffset.UTC)},
            {"uuid", UUID.fromString("12345678-9abc-def0-1234-56789abcdef0")},
        };
        try (Statement statement = connection.createStatement()) {
            for (int i = 0; i < values.length; i++) {
                String kind = (String) values[i][0];
                Object value = values[i][1];
                statement.execute("DROP TABLE IF EXISTS java_" + i);
                statement.execute("CREATE TABLE java_" + i + " (id int PRIMARY KEY, v " + kind + ")");
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_" + i + " VALUES (?, ?)");
                     PreparedStatement select = connection.prepareStatement("SELECT v FROM java_" + i + " WHERE id = ?")) {
                    // Beyond the threshold the driver prepares on the server and asks for binary.
                    for (int round = 0; round < 6; round++) {
                        insert.setInt(1, round);
                        insert.setObject(2, value);
                        expect(insert.executeUpdate() == 1, kind + ": rows inserted");
                        select.setInt(1, round);
                        try (ResultSet rows = select.executeQuery()) {
                            expect(rows.next(), kind + ": no row");
                            Object back = kind.equals("int2") ? (Object) rows.getInt(1) : rows.getObject(1, value.getClass());
                            expect(value.equals(back), kind + ": " + back + " is not " + value);
                        }
                    }
                }
                statement.execute("DROP TABLE java_" + i);
            }
            statement.execute("CREATE TABLE java_b (id int PRIMARY KEY, b bytea, a int[], j jsonb)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_b VALUES (1, ?, ?, ?::jsonb)")) {
                insert.setBytes(1, new byte[] {0, 1, -2, -1});
                insert.setArray(2, connection.createArrayOf("int4", new Object[] {1, null, -3}));
                insert.setString(3, "{\"b\": 1, \"a\": [null]}");
                insert.executeUpdate();
            }
            try (ResultSet rows = statement.executeQuery("SELECT b, a, j FROM java_b")) {
                rows.next();
                expect(Arrays.equals(rows.getBytes(1), new byte[] {0, 1, -2, -1}), "bytea");
                expect(Arrays.equals((Object[]) rows.getArray(2).getArray(), new Object[] {1, null, -3}), "int[]");
                expect(rows.getString(3).equals("{\"a\": [null], \"b\": 1}"), "jsonb " + rows.getString(3));
            }
            statement.execute("DROP TABLE java_b");
        }
    }

    static void transactions(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE java_t (id serial PRIMARY KEY, v int UNIQUE, name varchar(30))");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO java_t (v) VALUES (?)", Statement.RETURN_GENERATED_KEYS)) {
                insert.setInt(1, 5);
                insert.executeUpdate();
                ResultSet keys = insert.getGeneratedKeys();
                expect(keys.next() && keys.getInt("id") == 1, "generated key");
                for (int i = 100; i < 600; i++) {
                    insert.setInt(1, i);
                    insert.addBatch();
                }
                expect(insert.executeBatch().length == 500, "batch");
            }
            try {
                statement.execute("INSERT INTO java_t (v) VALUES (5)");
                expect(false, "no unique violation");
            } catch (SQLException error) {
                expect(error.getSQLState().equals("23505"), "SQLSTATE " + error.getSQLState());
            }
            connection.setAutoCommit(false);
            statement.execute("INSERT INTO java_t (v) VALUES (6)");
            Savepoint savepoint = connection.setSavepoint();
            statement.execute("INSERT INTO java_t (v) VALUES (7)");
            connection.rollback(savepoint);
            connection.commit();
            // A fetch size makes the driver use portals with row limits.
            try (PreparedStatement select = connection.prepareStatement("SELECT v FROM java_t ORDER BY v")) {
                select.setFetchSize(50);
                int rows = 0;
                try (ResultSet result = select.executeQuery()) {
                    while (result.next()) rows++;
                }
                expect(rows == 502, "rows with fetch size: " + rows);
            }
            connection.commit();
            connection.setAutoCommit(true);
            DatabaseMetaData metadata = connection.getMetaData();
            try (ResultSet columns = metadata.getColumns(null, "public", "java_t", "%")) {
                List<String> names = new ArrayList<>();
                while (columns.next()) names.add(columns.getString("COLUMN_NAME") + ":" + columns.getString("TYPE_NAME"));
                expect(names.equals(List.of("id:serial", "v:int4", "name:varchar")), "columns " + names);
            }
            try (ResultSet keys = metadata.getPrimaryKeys(null, "public", "java_t")) {
                expect(keys.next() && keys.getString("COLUMN_NAME").equals("id"), "primary key");
            }
            try (ResultSet tables = metadata.getTables(null, "public", "java_t", new String[] {"TABLE"})) {
                expect(tables.next() && tables.getString("TABLE_NAME").equals("java_t"), "tables");
            }
            statement.execute("DROP TABLE java_t");
        }
    }

    static void cancel(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            Thread canceller = new Thread(() -> {
                try {
                    Thread.sleep(300);
                    statement.cancel();
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            canceller.start();
            try {
                statement.execute("SELECT pg_sleep(60)");
                expect(false, "not cancelled");
            } catch (SQLException error) {
                expect(error.getSQLState().equals("57014"), "SQLSTATE " + error.getSQLState());
            }
            canceller.join();
            try (ResultSet rows = statement.executeQuery("SELECT 1")) {
                expect(rows.next() && rows.getInt(1) == 1, "the session goes on");
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = connect()) {
            expect(connection.isValid(10), "valid");
            types(connection);
            transactions(connection);
            cancel(connection);
        }
        System.out.println("jdbc: ok");
    }
}
