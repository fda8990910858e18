-- What Grafana's PostgreSQL data source asks while a query is put together. The schema `pg_dormouse` is no PostgreSQL's.
SELECT current_setting('server_version_num')::int / 100 AS version
\rows
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'
\rows
SELECT schema_name AS name FROM information_schema.schemata
WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast', 'pg_dormouse') ORDER BY schema_name
\rows
SELECT quote_ident(table_name) AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) = 'shop' ORDER BY 1
\rows
-- Tables, those of the search path without their schema and first.
SELECT CASE WHEN quote_ident(table_schema) IN (
           SELECT CASE WHEN trim(part[i]) = '"$user"' THEN user ELSE trim(part[i]) END
           FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
                                array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
                string_to_array(current_setting('search_path'), ',') part)
       THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', 'pg_dormouse')
ORDER BY CASE WHEN quote_ident(table_schema) IN (
           SELECT CASE WHEN trim(part[i]) = '"$user"' THEN user ELSE trim(part[i]) END
           FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
                                array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
                string_to_array(current_setting('search_path'), ',') part) THEN 0 ELSE 1 END, 1
\rows
SELECT quote_ident(column_name) AS "column", data_type AS type FROM information_schema.columns
WHERE CASE WHEN array_length(parse_ident('shop.customers'), 1) = 2
      THEN quote_ident(table_schema) = (parse_ident('shop.customers'))[1] AND quote_ident(table_name) = (parse_ident('shop.customers'))[2]
      ELSE quote_ident(table_name) = 'shop.customers' END
\rows
-- What a panel over time sends.
SELECT floor(extract(epoch FROM created) / 300) * 300 AS "time", count(*) AS value FROM shop.customers
WHERE created BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-02T00:00:00.5Z' GROUP BY 1 ORDER BY 1
\rows
SELECT extract(epoch FROM created)::bigint AS "time", email AS metric, id AS value FROM shop.customers
WHERE extract(epoch FROM created) >= 1704067200 AND extract(epoch FROM created) <= 1704153600 ORDER BY 1, 2
\rows
