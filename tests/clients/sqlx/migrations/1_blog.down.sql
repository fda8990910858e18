DROP TABLE posts;
DROP TABLE users;
DROP TYPE role;
