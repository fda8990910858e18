CREATE TYPE role AS ENUM ('reader', 'writer');
CREATE TABLE users (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL CONSTRAINT users_name_unique UNIQUE,
    role role NOT NULL DEFAULT 'reader',
    balance numeric(12, 2) NOT NULL DEFAULT 0 CONSTRAINT users_solvent CHECK (balance >= 0),
    settings jsonb NOT NULL DEFAULT '{}',
    tags text[] NOT NULL DEFAULT '{}',
    created timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE posts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    author bigint NOT NULL REFERENCES users ON DELETE CASCADE,
    title varchar(60) NOT NULL,
    published date,
    picture bytea,
    score double precision
);
CREATE INDEX posts_author_title ON posts (author, title);
