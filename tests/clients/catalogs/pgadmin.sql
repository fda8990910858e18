-- What pgAdmin asks: at connect, for its browser tree, the properties of what is chosen there, its dashboard and its search.
SELECT set_config('bytea_output', 'hex', false) FROM pg_catalog.pg_show_all_settings() WHERE name = 'bytea_output'
\rows
SELECT CASE WHEN usesuper THEN pg_catalog.pg_is_in_recovery() ELSE false END AS in_recovery,
       CASE WHEN usesuper AND pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_is_wal_replay_paused() ELSE false END AS replay_paused
FROM pg_catalog.pg_user WHERE usename = current_user
\rows
SELECT roles.oid AS id, roles.rolname AS name, roles.rolsuper AS is_superuser,
       CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreaterole END AS can_create_role,
       CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreatedb END AS can_create_db,
       CASE WHEN 'pg_signal_backend' = ANY (ARRAY(WITH RECURSIVE cte AS (
         SELECT r.oid, r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = roles.oid
         UNION ALL
         SELECT m.roleid, rr.rolname FROM cte JOIN pg_catalog.pg_auth_members m ON m.member = cte.oid JOIN pg_catalog.pg_roles rr ON rr.oid = m.roleid)
         SELECT rolname FROM cte)) THEN true ELSE false END AS can_signal_backend
FROM pg_catalog.pg_roles AS roles WHERE rolname = current_user
\columns
SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()
\columns
SELECT db.oid AS did, db.datname AS name, ta.spcname AS spcname, db.datallowconn, db.datistemplate AS is_template,
       pg_catalog.has_database_privilege(db.oid, 'CREATE') AS cancreate, datdba AS owner, descr.description
FROM pg_catalog.pg_database db
LEFT OUTER JOIN pg_catalog.pg_tablespace ta ON db.dattablespace = ta.oid
LEFT OUTER JOIN pg_catalog.pg_shdescription descr ON db.oid = descr.objoid AND descr.classoid = 'pg_database'::regclass
WHERE db.datname = current_database() ORDER BY datname
\columns
SELECT nsp.oid, nsp.nspname AS name, pg_catalog.has_schema_privilege(nsp.oid, 'CREATE') AS can_create,
       pg_catalog.has_schema_privilege(nsp.oid, 'USAGE') AS has_usage, des.description
FROM pg_catalog.pg_namespace nsp
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = nsp.oid AND des.classoid = 'pg_namespace'::regclass
WHERE nspname NOT LIKE 'pg!_%' ESCAPE '!' AND NOT (nsp.nspname = 'information_schema') ORDER BY nspname
\rows
SELECT rel.oid, rel.relname AS name,
       (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = false) AS triggercount,
       (CASE WHEN rel.relkind = 'p' THEN true ELSE false END) AS is_partitioned,
       (SELECT count(1) FROM pg_catalog.pg_inherits WHERE inhrelid = rel.oid LIMIT 1) AS is_inherits,
       (SELECT count(1) FROM pg_catalog.pg_inherits WHERE inhparent = rel.oid LIMIT 1) AS is_inherited, des.description
FROM pg_catalog.pg_class rel
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = rel.oid AND des.objsubid = 0 AND des.classoid = 'pg_class'::regclass
WHERE rel.relkind IN ('r', 's', 't', 'p') AND rel.relnamespace = :scid::oid AND NOT rel.relispartition ORDER BY rel.relname
\rows
SELECT rel.relname AS name, (CASE WHEN length(spc.spcname) > 0 THEN spc.spcname ELSE
         (SELECT sp.spcname FROM pg_catalog.pg_database dtb JOIN pg_catalog.pg_tablespace sp ON dtb.dattablespace = sp.oid WHERE dtb.datname = current_database()) END) AS spcname,
       (CASE rel.relreplident WHEN 'd' THEN 'default' WHEN 'n' THEN 'nothing' WHEN 'f' THEN 'full' WHEN 'i' THEN 'index' END) AS replica_identity,
       rel.relnamespace::regnamespace AS schema, rel.relkind, rel.relpersistence = 'u' AS unlogged, des.description, con.conname, con.conkey,
       (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = false) AS triggercount,
       (SELECT array_agg(inhparent::regclass::text ORDER BY inhseqno) FROM pg_catalog.pg_inherits i WHERE inhrelid = rel.oid) AS coll_inherits,
       pg_catalog.array_to_string(rel.reloptions, ',') AS reloptions, typ.typname, am.amname, rel.relrowsecurity AS rlspolicy, rel.relforcerowsecurity AS forcerlspolicy
FROM pg_catalog.pg_class rel
LEFT OUTER JOIN pg_catalog.pg_tablespace spc ON spc.oid = rel.reltablespace
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = rel.oid AND des.objsubid = 0 AND des.classoid = 'pg_class'::regclass
LEFT OUTER JOIN pg_catalog.pg_constraint con ON con.conrelid = rel.oid AND con.contype = 'p'
LEFT OUTER JOIN pg_catalog.pg_class tst ON tst.oid = rel.reltoastrelid
LEFT JOIN pg_catalog.pg_type typ ON rel.reloftype = typ.oid
LEFT OUTER JOIN pg_catalog.pg_am am ON am.oid = rel.relam
WHERE rel.relkind IN ('r', 's', 't', 'p') AND rel.relnamespace = :scid AND NOT rel.relispartition ORDER BY rel.relname
\rows
SELECT DISTINCT ON (att.attnum) att.attname AS name, att.atttypmod, att.attlen, att.attnum, att.attndims, att.atthasdef, att.attisdropped,
       att.attislocal, att.attstattarget, att.attnotnull, att.attidentity AS colconstype, att.attgenerated,
       CASE WHEN att.attidentity IN ('a', 'd') THEN 'i' WHEN att.attgenerated IN ('s') THEN 'g' ELSE 'n' END AS kind,
       CASE WHEN tn.nspname = 'pg_catalog' THEN ty.typname END AS typname, pg_catalog.format_type(att.atttypid, att.atttypmod) AS cltype,
       pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS defval,
       CASE WHEN length(coll.collname::text) > 0 AND length(nspc.nspname::text) > 0 THEN pg_catalog.concat(pg_catalog.quote_ident(nspc.nspname), '.', pg_catalog.quote_ident(coll.collname)) ELSE '' END AS collspcname,
       des.description, CASE WHEN con.conname IS NULL THEN false ELSE true END AS is_pk, seq.seqstart, seq.seqincrement, seq.seqmin, seq.seqmax, seq.seqcache, seq.seqcycle
FROM pg_catalog.pg_attribute att
JOIN pg_catalog.pg_type ty ON ty.oid = atttypid
JOIN pg_catalog.pg_namespace tn ON tn.oid = ty.typnamespace
LEFT OUTER JOIN pg_catalog.pg_attrdef def ON adrelid = att.attrelid AND adnum = att.attnum
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = att.attrelid AND des.objsubid = att.attnum AND des.classoid = 'pg_class'::regclass
LEFT OUTER JOIN (pg_catalog.pg_depend dep JOIN pg_catalog.pg_class cs ON dep.classid = 'pg_class'::regclass AND dep.objid = cs.oid AND cs.relkind = 'S')
  ON dep.refobjid = att.attrelid AND dep.refobjsubid = att.attnum
LEFT OUTER JOIN pg_catalog.pg_constraint con ON con.conrelid = att.attrelid AND con.contype = 'p' AND att.attnum = ANY (con.conkey)
LEFT OUTER JOIN pg_catalog.pg_collation coll ON att.attcollation = coll.oid
LEFT OUTER JOIN pg_catalog.pg_namespace nspc ON coll.collnamespace = nspc.oid
LEFT OUTER JOIN pg_catalog.pg_sequence seq ON cs.oid = seq.seqrelid
WHERE att.attrelid = :tid AND att.attnum > 0 AND att.attisdropped IS FALSE ORDER BY att.attnum
\rows
SELECT cls.oid, cls.relname AS idxname, indrelid, (SELECT count(*) FROM pg_catalog.pg_inherits WHERE inhrelid = cls.oid) AS is_inherited, i.indkey, i.indisclustered,
       i.indisvalid, i.indisunique, i.indisprimary, i.indnkeyatts, n.nspname, tab.relname AS tabname, i.indclass, con.oid AS conoid,
       CASE WHEN contype IN ('p', 'u', 'x') THEN desp.description ELSE des.description END AS description,
       pg_catalog.pg_get_expr(i.indpred, i.indrelid, true) AS indconstraint, contype, condeferrable, condeferred, amname,
       (SELECT (CASE WHEN count(i.inhrelid) > 0 THEN true ELSE false END) FROM pg_catalog.pg_inherits i WHERE i.inhrelid = cls.oid) AS is_inherited_too,
       substring(pg_catalog.array_to_string(cls.reloptions, ',') FROM 'fillfactor=([0-9]*)') AS fillfactor
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class cls ON cls.oid = indexrelid
JOIN pg_catalog.pg_class tab ON tab.oid = indrelid
LEFT OUTER JOIN pg_catalog.pg_tablespace ta ON ta.oid = cls.reltablespace
JOIN pg_catalog.pg_namespace n ON n.oid = tab.relnamespace
JOIN pg_catalog.pg_am am ON am.oid = cls.relam
LEFT JOIN pg_catalog.pg_depend dep ON dep.classid = cls.tableoid AND dep.objid = cls.oid AND dep.refobjsubid = '0'
  AND dep.refclassid = (SELECT oid FROM pg_catalog.pg_class WHERE relname = 'pg_constraint') AND dep.deptype = 'i'
LEFT OUTER JOIN pg_catalog.pg_constraint con ON con.tableoid = dep.refclassid AND con.oid = dep.refobjid
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = cls.oid AND des.classoid = 'pg_class'::regclass
LEFT OUTER JOIN pg_catalog.pg_description desp ON desp.objoid = con.oid AND desp.objsubid = 0 AND desp.classoid = 'pg_constraint'::regclass
WHERE indrelid = :tid::oid ORDER BY cls.relname
\columns
SELECT cls.relname AS idxname, i.indkey, i.indisunique, i.indisprimary, contype, condeferrable, amname, pg_catalog.pg_get_expr(i.indpred, i.indrelid, true) AS indconstraint
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class cls ON cls.oid = indexrelid
JOIN pg_catalog.pg_am am ON am.oid = cls.relam
LEFT JOIN pg_catalog.pg_depend dep ON dep.classid = cls.tableoid AND dep.objid = cls.oid AND dep.refobjsubid = '0'
  AND dep.refclassid = (SELECT oid FROM pg_catalog.pg_class WHERE relname = 'pg_constraint') AND dep.deptype = 'i'
LEFT OUTER JOIN pg_catalog.pg_constraint con ON con.tableoid = dep.refclassid AND con.oid = dep.refobjid
WHERE indrelid = :tid::oid ORDER BY cls.relname
\rows
SELECT a.attname AS colname, i.indoption[a.attnum - 1] AS options, CASE WHEN o.opcdefault = false THEN o.opcname END AS opcname,
       pg_catalog.pg_get_indexdef(i.indexrelid, a.attnum, true) AS coldef,
       CASE (i.indoption[a.attnum - 1] & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END AS "order", op.oprname
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indexrelid
LEFT JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[a.attnum - 1]
LEFT OUTER JOIN pg_catalog.pg_constraint c ON i.indexrelid = c.conindid
LEFT OUTER JOIN pg_catalog.pg_operator op ON op.oid = c.conexclop[a.attnum]
WHERE i.indexrelid = 'shop.orders_newest'::regclass ORDER BY a.attnum
\rows
SELECT ct.conname AS name, condeferrable, condeferred, confupdtype, confdeltype, CASE confmatchtype WHEN 's' THEN false WHEN 'f' THEN true END AS confmatchtype,
       conkey, confkey, fknsp.nspname AS fknsp, fktab.relname AS fktab, refnsp.nspname AS refnsp, reftab.relname AS reftab, description, convalidated, conislocal
FROM pg_catalog.pg_constraint ct
JOIN pg_catalog.pg_class fktab ON fktab.oid = conrelid
JOIN pg_catalog.pg_namespace fknsp ON fknsp.oid = fktab.relnamespace
JOIN pg_catalog.pg_class reftab ON reftab.oid = confrelid
JOIN pg_catalog.pg_namespace refnsp ON refnsp.oid = reftab.relnamespace
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = ct.oid AND des.classoid = 'pg_constraint'::regclass
WHERE ct.contype = 'f' AND conrelid = :tid::oid ORDER BY conname
\rows
SELECT conname AS name, relname, nspname, description, pg_catalog.pg_get_expr(conbin, conrelid, true) IS NOT NULL AS has_source, connoinherit, convalidated
FROM pg_catalog.pg_constraint c
JOIN pg_catalog.pg_class cl ON cl.oid = conrelid
JOIN pg_catalog.pg_namespace nl ON nl.oid = relnamespace
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = c.oid AND des.classoid = 'pg_constraint'::regclass
WHERE contype = 'c' AND conrelid = :tid::oid ORDER BY conname
\rows
SELECT c.relname AS name, c.relkind, (CASE WHEN length(spc.spcname::text) > 0 THEN spc.spcname ELSE 'pg_default' END) AS spcname, nsp.nspname AS schema, description,
       (CASE WHEN c.oid <= 16383 THEN true ELSE false END) AS system_view, pg_catalog.array_to_string(c.reloptions, ',') AS reloptions,
       length(pg_catalog.pg_get_viewdef(c.oid, true)) > 0 AS has_definition
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_namespace nsp ON nsp.oid = c.relnamespace
LEFT OUTER JOIN pg_catalog.pg_tablespace spc ON spc.oid = c.reltablespace
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = c.oid AND des.objsubid = 0 AND des.classoid = 'pg_class'::regclass
WHERE ((c.relhasrules AND (EXISTS (SELECT r.rulename FROM pg_catalog.pg_rewrite r WHERE ((r.ev_class = c.oid) AND (bpchar(r.ev_type) = '1'::bpchar)))))
   AND c.relkind = 'v') AND c.relnamespace = :scid::oid ORDER BY c.relname
\rows
SELECT cl.relname AS name, (CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_depend d WHERE d.objid = cl.oid AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0) THEN true ELSE false END) AS owned
FROM pg_catalog.pg_class cl
LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = cl.oid AND des.classoid = 'pg_class'::regclass
WHERE relkind = 'S' AND relnamespace = :scid::oid ORDER BY relname
\rows
SELECT privilege_type, gt.rolname AS grantee, g.rolname AS grantor, is_grantable FROM
  (SELECT (d).grantee AS grantee, (d).grantor AS grantor, (d).is_grantable AS is_grantable, (d).privilege_type AS privilege_type
   FROM (SELECT aclexplode(db.relacl) AS d FROM pg_catalog.pg_class db WHERE db.oid = 'shop.tickets'::regclass) a) d
LEFT JOIN pg_catalog.pg_roles g ON d.grantor = g.oid LEFT JOIN pg_catalog.pg_roles gt ON d.grantee = gt.oid
\rows
SELECT u.grantee, u.privilege_type FROM pg_catalog.aclexplode((SELECT relacl FROM pg_catalog.pg_class cl WHERE cl.oid = 'shop.tickets'::regclass)) u
\rows
SELECT d.typname AS name, pg_catalog.format_type(b.oid, d.typtypmod) AS basetype, d.typlen, d.typtypmod, d.typnotnull, d.typdefault, bn.nspname AS basensp, d.typndims
FROM pg_catalog.pg_type d
JOIN pg_catalog.pg_type b ON b.oid = d.typbasetype
JOIN pg_catalog.pg_namespace bn ON bn.oid = d.typnamespace
WHERE d.typnamespace = :scid::oid ORDER BY d.typname
\rows
SELECT t.typname AS name, CASE WHEN t.typelem > 0 THEN pg_catalog.format_type(t.typelem, NULL) END AS element, t.typtype, ct.relkind
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type e ON e.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class ct ON ct.oid = t.typrelid AND ct.relkind <> 'c'
WHERE t.typtype != 'd' AND t.typname NOT LIKE E'\\_%' AND t.typnamespace = :scid::oid AND ct.oid IS NULL ORDER BY t.typname
\rows
SELECT t.tgname AS name, t.tgenabled AS is_enable_trigger, COALESCE(pg_catalog.substring(pg_catalog.pg_get_triggerdef(t.oid, true), 'WHEN (.*) EXECUTE (PROCEDURE|FUNCTION)'), '') AS whenclause,
       (pg_catalog.string_to_array(encode(tgargs, 'escape'), E'\\000')::text[])[1:tgnargs] AS custom_tgargs
FROM pg_catalog.pg_trigger t WHERE NOT tgisinternal AND tgrelid = :tid::oid ORDER BY tgname
\columns
SELECT pr.oid, pr.proname || '(' || COALESCE(pg_catalog.pg_get_function_identity_arguments(pr.oid), '') || ')' AS name, lanname, typns.nspname AS typnsp,
       pg_catalog.oidvectortypes(pr.proargtypes) AS arguments, proargtypes::regtype[] AS types
FROM pg_catalog.pg_proc pr
JOIN pg_catalog.pg_type typ ON typ.oid = prorettype
JOIN pg_catalog.pg_namespace typns ON typns.oid = typ.typnamespace
JOIN pg_catalog.pg_language lng ON lng.oid = prolang
WHERE pr.prokind IN ('f', 'w') AND pronamespace = :scid::oid ORDER BY proname
\columns
SELECT pg_catalog.oidvectortypes(proargtypes) AS arguments, proargtypes::regtype[] AS types FROM pg_catalog.pg_proc WHERE proname IN ('abs', 'lpad') ORDER BY 1
\rows
SELECT 'session_stats' AS chart_name, pg_catalog.row_to_json(t) IS NOT NULL AS chart_data FROM (SELECT
  (SELECT count(*) FROM pg_catalog.pg_stat_activity) AS "Total",
  (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'active') AS "Active",
  (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'idle') AS "Idle") t
UNION ALL
SELECT 'tps_stats', pg_catalog.row_to_json(t) IS NOT NULL FROM (SELECT
  (SELECT sum(xact_commit) + sum(xact_rollback) FROM pg_catalog.pg_stat_database) AS "Transactions",
  (SELECT sum(xact_commit) FROM pg_catalog.pg_stat_database) AS "Commits") t
\rows
SELECT pid, datname, usename, application_name, client_addr, pg_catalog.to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS TZ') AS backend_start, state,
       wait_event_type || ': ' || wait_event AS wait_event, pg_catalog.array_to_string(pg_catalog.pg_blocking_pids(pid), ', ') AS blocking_pids, query,
       CASE WHEN state = 'active' THEN round(extract(epoch FROM (now() - query_start))::numeric, 2) END AS active_since
FROM pg_catalog.pg_stat_activity WHERE datname = current_database() ORDER BY pid
\columns
SELECT pid, locktype, datname, relation::regclass, page, tuple, virtualxid, transactionid, classid::regclass, objid, objsubid, virtualtransaction, mode, granted, fastpath
FROM pg_catalog.pg_locks l LEFT OUTER JOIN pg_catalog.pg_database d ON l.database = d.oid ORDER BY pid, locktype
\columns
SELECT gid, prepared, owner, database, transaction AS transaction_id FROM pg_catalog.pg_prepared_xacts ORDER BY gid
\columns
SELECT n_live_tup AS tuples, seq_scan, seq_tup_read, idx_scan, n_tup_ins, n_tup_upd, n_tup_del, n_tup_hot_upd, n_dead_tup, heap_blks_read, heap_blks_hit, idx_blks_read,
       toast_blks_read, last_vacuum, last_autovacuum, last_analyze, last_autoanalyze, vacuum_count, analyze_count,
       pg_catalog.pg_stat_get_last_vacuum_time(stat.relid) AS vacuumed, pg_catalog.pg_size_pretty(pg_catalog.pg_relation_size(stat.relid)) AS size
FROM pg_catalog.pg_stat_all_tables stat JOIN pg_catalog.pg_statio_all_tables statio ON stat.relid = statio.relid WHERE stat.relid = :tid::oid
\columns
SELECT obj_type, obj_name, schema_name FROM (
  SELECT CASE c.relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' END AS obj_type, c.relname::text AS obj_name, n.nspname AS schema_name
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'i', 'S', 'v')
  UNION SELECT 'column', a.attname, n.nspname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'v')
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE a.attnum > 0 AND NOT a.attisdropped
  UNION SELECT CASE contype WHEN 'p' THEN 'primary_key' WHEN 'f' THEN 'foreign_key' WHEN 'c' THEN 'check_constraint' ELSE 'unique_constraint' END, con.conname, n.nspname
    FROM pg_catalog.pg_constraint con JOIN pg_catalog.pg_namespace n ON n.oid = con.connamespace WHERE con.conrelid <> 0
) sn WHERE schema_name = 'shop' AND obj_name ILIKE '%o%' ORDER BY 1, 2, 3
\rows
SELECT host(inet_client_addr()) IS NOT NULL AS has_address
\columns
