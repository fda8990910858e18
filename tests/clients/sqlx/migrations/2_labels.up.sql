ALTER TABLE posts ADD COLUMN words integer NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN email text;
ALTER TABLE users RENAME COLUMN tags TO labels;
CREATE UNIQUE INDEX users_email ON users (lower(email));
CREATE VIEW writers AS SELECT id, name, balance FROM users WHERE role = 'writer';
