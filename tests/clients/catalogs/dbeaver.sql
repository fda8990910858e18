-- What DBeaver asks to fill its navigator: sessions, databases, schemas, tables, columns, keys, indexes, types, views.
SHOW search_path
\columns
SELECT current_schema(), session_user
\columns
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname = current_database() ORDER BY db.datname
\columns
SELECT a.oid, a.*, pd.description FROM pg_catalog.pg_roles a
LEFT JOIN pg_catalog.pg_shdescription pd ON a.oid = pd.objoid ORDER BY a.rolname
\columns
SELECT a.oid, a.rolname, m.admin_option FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles a ON m.roleid = a.oid WHERE m.member = 10
\rows
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
ORDER BY nspname
\columns
SELECT n.nspname, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema' ORDER BY nspname
\rows
SELECT t.oid, t.*, pg_tablespace_location(t.oid) loc FROM pg_catalog.pg_tablespace t ORDER BY t.oid
\columns
SELECT l.oid, l.* FROM pg_catalog.pg_language l ORDER BY l.oid
\columns
SELECT am.oid, am.* FROM pg_catalog.pg_am am ORDER BY am.oid
\columns
SELECT c.oid, c.* FROM pg_catalog.pg_collation c ORDER BY c.oid
\columns
SELECT c.contoencoding AS encid, pg_catalog.pg_encoding_to_char(c.contoencoding) AS encname FROM pg_catalog.pg_conversion c
GROUP BY c.contoencoding ORDER BY 2
\columns
SELECT e.oid, n.nspname AS schema_name, cfg.tbls, e.* FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
LEFT JOIN (SELECT array_agg(ns.nspname || '.' || cl.relname) AS tbls, oid_ext FROM (SELECT unnest(e1.extconfig) AS tbl_oid, e1.oid AS oid_ext
  FROM pg_catalog.pg_extension e1) cfg JOIN pg_catalog.pg_class cl ON cl.oid = cfg.tbl_oid JOIN pg_catalog.pg_namespace ns ON ns.oid = cl.relnamespace
  GROUP BY oid_ext) cfg ON cfg.oid_ext = e.oid ORDER BY e.oid
\columns
SELECT c.oid, d.*, c.* FROM pg_catalog.pg_default_acl c LEFT JOIN pg_catalog.pg_description d ON d.objoid = c.oid
\columns
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 'shop'::regnamespace AND c.relkind NOT IN ('i', 'I', 'c')
\columns
SELECT c.relname, c.relkind, c.relhasindex, c.relpersistence, c.relnatts, c.relhasrules, c.relhastriggers, c.relrowsecurity, c.relispartition, d.description
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 'shop'::regnamespace AND c.relkind NOT IN ('i', 'I', 'c') ORDER BY c.relname
\rows
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON a.attrelid = c.oid
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON a.attrelid = ad.adrelid AND a.attnum = ad.adnum
LEFT OUTER JOIN pg_catalog.pg_description dsc ON c.oid = dsc.objoid AND a.attnum = dsc.objsubid
LEFT OUTER JOIN pg_catalog.pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.oid = :tid ORDER BY a.attnum
\columns
SELECT a.attname, a.attnum, a.atttypmod, a.attnotnull, a.atthasdef, a.attidentity, a.attgenerated, a.attndims, a.attlen,
       pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid IS NOT NULL AS owns_sequence,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type_name
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON a.attrelid = c.oid
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON a.attrelid = ad.adrelid AND a.attnum = ad.adnum
LEFT OUTER JOIN pg_catalog.pg_description dsc ON c.oid = dsc.objoid AND a.attnum = dsc.objsubid
LEFT OUTER JOIN pg_catalog.pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND a.attnum > 0 AND c.relnamespace = 'shop'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY c.relname, a.attnum
\rows
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description, NULL AS consrc_copy
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass
WHERE c.conrelid = :tid ORDER BY c.oid
\columns
SELECT c.conname, c.contype, c.condeferrable, c.condeferred, c.convalidated, c.confupdtype, c.confdeltype, c.confmatchtype, c.conkey, c.confkey,
       t.relname AS tabrelname, rt.relname AS refname,
       CASE WHEN c.contype <> 'c' THEN pg_catalog.pg_get_constraintdef(c.oid) END AS definition
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
WHERE t.relnamespace = 'shop'::regnamespace ORDER BY t.relname, c.conname
\rows
SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description,
       pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE i.indrelid = :tid ORDER BY tabrelname, c.relname
\columns
SELECT c.relname, i.indisunique, i.indisprimary, i.indisvalid, i.indnatts, i.indnkeyatts, i.indkey AS keys, i.indoption, tc.relname AS tabrelname,
       pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
       pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) AS first, pg_catalog.pg_get_indexdef(i.indexrelid) AS definition
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
WHERE tc.relnamespace = 'shop'::regnamespace ORDER BY tabrelname, c.relname
\rows
SELECT t.oid, t.*, c.relkind, pg_catalog.format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
\columns
SELECT t.typname, t.typlen, t.typtype, t.typcategory, t.typnotnull, t.typtypmod, t.typdefault,
       pg_catalog.format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
WHERE t.typnamespace = 'shop'::regnamespace AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C') AND t.typname NOT LIKE '\_%' ORDER BY t.typname
\rows
SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid = 'shop.size'::regtype ORDER BY e.enumsortorder
\rows
SELECT p.oid, p.*, pg_catalog.pg_get_expr(p.proargdefaults, 0) AS arg_defaults, d.description FROM pg_catalog.pg_proc p
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid AND d.objsubid = 0 WHERE p.pronamespace = 'shop'::regnamespace ORDER BY p.proname
\columns
SELECT x.oid, x.*, p.pronamespace AS func_schema_id, d.description FROM pg_catalog.pg_trigger x
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid AND d.objsubid = 0 WHERE x.tgrelid = :tid AND NOT x.tgisinternal
\columns
SELECT r.rulename, c.relname, r.ev_type, r.is_instead FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
WHERE c.relnamespace = 'shop'::regnamespace
\rows
SELECT * FROM pg_catalog.pg_policies WHERE schemaname = 'shop'
\columns
SELECT pg_catalog.pg_get_viewdef(c.oid, true) IS NOT NULL AS has_definition FROM pg_catalog.pg_class c WHERE c.relkind = 'v' AND c.relnamespace = 'shop'::regnamespace
\rows
SELECT seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle, pg_catalog.format_type(seqtypid, NULL) AS type
FROM pg_catalog.pg_sequence WHERE seqrelid = 'shop.tickets'::regclass
\rows
SELECT last_value, is_called FROM shop.tickets
\rows
SELECT i.inhrelid, i.inhparent FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhparent = :tid AND c.oid = i.inhrelid
\rows
SELECT dep.deptype, dep.classid::regclass AS class, cl.relkind, cl.relname FROM pg_catalog.pg_depend dep
LEFT JOIN pg_catalog.pg_class cl ON dep.objid = cl.oid WHERE dep.refobjid = 'shop.customers'::regclass AND dep.classid = 'pg_class'::regclass AND cl.relkind = 'S'
\rows
SELECT pc.oid, pc.relname, pc.relnamespace, pc.relkind FROM pg_catalog.pg_class pc
LEFT JOIN pg_catalog.pg_description pd ON pc.oid = pd.objoid AND pd.objsubid = 0
WHERE pc.relname ILIKE '%order%' AND pc.relkind IN ('r', 'v', 'm', 'f', 'p') AND pc.relnamespace IN (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'shop')
ORDER BY pc.relname LIMIT 100
\columns
SELECT c.relname, pg_catalog.pg_total_relation_size(c.oid) >= 0 AS total, pg_catalog.pg_relation_size(c.oid) >= 0 AS size, s.n_tup_ins
FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid WHERE c.relnamespace = 'shop'::regnamespace AND c.relkind = 'r'
\columns
SELECT sa.*, now() - sa.query_start AS lasted, pg_catalog.pg_blocking_pids(sa.pid) AS blocked_by FROM pg_catalog.pg_stat_activity sa
\columns
SELECT name, setting, unit, short_desc, context, vartype, min_val, max_val, enumvals, boot_val, reset_val FROM pg_catalog.pg_settings
WHERE name IN ('statement_timeout', 'search_path', 'DateStyle', 'standard_conforming_strings') ORDER BY name
\columns
