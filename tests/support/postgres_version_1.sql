SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA version_1;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE version_1.a2a_tasks (
    id text NOT NULL,
    context text NOT NULL,
    state integer NOT NULL,
    task bytea NOT NULL
);
CREATE TABLE version_1.checkpoint_blobs (
    thread_id text NOT NULL,
    checkpoint_ns text DEFAULT ''::text NOT NULL,
    channel text NOT NULL,
    version text NOT NULL,
    type text NOT NULL,
    blob bytea
);
CREATE TABLE version_1.checkpoint_migrations (
    v integer NOT NULL
);
CREATE TABLE version_1.checkpoint_writes (
    thread_id text NOT NULL,
    checkpoint_ns text DEFAULT ''::text NOT NULL,
    checkpoint_id text NOT NULL,
    task_id text NOT NULL,
    idx integer NOT NULL,
    channel text NOT NULL,
    type text,
    blob bytea NOT NULL,
    task_path text DEFAULT ''::text NOT NULL
);
CREATE TABLE version_1.checkpoints (
    thread_id text NOT NULL,
    checkpoint_ns text DEFAULT ''::text NOT NULL,
    checkpoint_id text NOT NULL,
    parent_checkpoint_id text,
    type text,
    checkpoint jsonb NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE version_1.events (
    thread text NOT NULL,
    seq bigint NOT NULL,
    event text NOT NULL
);
CREATE TABLE version_1.first_sights (
    thread text NOT NULL,
    branch text NOT NULL,
    namespace text NOT NULL,
    parent text NOT NULL,
    tool text NOT NULL,
    args text NOT NULL,
    "position" integer NOT NULL,
    message text NOT NULL,
    call_id text NOT NULL
);
CREATE TABLE version_1.ledger (
    effect text NOT NULL,
    thread text NOT NULL,
    branch text NOT NULL,
    tool text NOT NULL,
    args text NOT NULL,
    occurrence integer NOT NULL,
    call_id text NOT NULL,
    attempts integer NOT NULL,
    stage text NOT NULL,
    outcome text,
    at timestamp(0) without time zone DEFAULT CURRENT_TIMESTAMP NOT NULL,
    checksum bigint
);
CREATE TABLE version_1.openmanus_schema (
    version integer NOT NULL
);
CREATE TABLE version_1.questions (
    effect text NOT NULL,
    name text NOT NULL,
    thread text NOT NULL,
    "position" integer NOT NULL
);
CREATE TABLE version_1.remarks (
    number bigint NOT NULL,
    id text NOT NULL,
    thread text NOT NULL,
    text text NOT NULL,
    read integer DEFAULT 0 NOT NULL,
    at timestamp(0) without time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);
ALTER TABLE version_1.remarks ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME version_1.remarks_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE SEQUENCE version_1.thread_numbers
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE version_1.threads (
    rowid bigint DEFAULT nextval('version_1.thread_numbers'::regclass) NOT NULL,
    id text NOT NULL,
    agent text NOT NULL,
    task text NOT NULL,
    options text NOT NULL,
    status text NOT NULL,
    created timestamp(0) without time zone DEFAULT CURRENT_TIMESTAMP NOT NULL,
    updated timestamp(0) without time zone DEFAULT CURRENT_TIMESTAMP NOT NULL
);
CREATE TABLE version_1.titles (
    thread text NOT NULL,
    title text NOT NULL
);
CREATE TABLE version_1.user_messages (
    thread text NOT NULL,
    message text NOT NULL
);
INSERT INTO version_1.checkpoint_migrations VALUES (0);
INSERT INTO version_1.checkpoint_migrations VALUES (1);
INSERT INTO version_1.checkpoint_migrations VALUES (2);
INSERT INTO version_1.checkpoint_migrations VALUES (3);
INSERT INTO version_1.checkpoint_migrations VALUES (4);
INSERT INTO version_1.checkpoint_migrations VALUES (5);
INSERT INTO version_1.checkpoint_migrations VALUES (6);
INSERT INTO version_1.checkpoint_migrations VALUES (7);
INSERT INTO version_1.checkpoint_migrations VALUES (8);
INSERT INTO version_1.checkpoint_migrations VALUES (9);
INSERT INTO version_1.events VALUES ('b', 1, '{"type": "notice", "text": "event 1"}');
INSERT INTO version_1.events VALUES ('b', 2, '{"type": "notice", "text": "event 2"}');
INSERT INTO version_1.events VALUES ('b', 3, '{"type": "notice", "text": "event 3"}');
INSERT INTO version_1.first_sights VALUES ('c', 'b1', '', 'm-c', 'pay', 'digest', 0, 'reply-1', 'c1');
INSERT INTO version_1.ledger VALUES ('7fc03f58c4981fe7c09ba614632d04cd', 'c', 'b1', 'pay', '{"amount":5}', 0, 'c1', 1, 'intent', NULL, '2026-11-23 09:37:28', 3799360607);
INSERT INTO version_1.ledger VALUES ('544b5f3f179a2009fbde3bcc8da67f0a', 'b', 'b1', 'pay', '{"amount":7}', 0, 'c1', 1, 'done', '{"text": "paid 7"}', '2026-11-23 09:37:28', 1757438328);
INSERT INTO version_1.openmanus_schema VALUES (1);
INSERT INTO version_1.questions VALUES ('7fc03f58c4981fe7c09ba614632d04cd', 'unknown outcome 1', 'c', 2);
INSERT INTO version_1.remarks OVERRIDING SYSTEM VALUE VALUES (1, 'remark-f1f48607-c593-42b2-b489-b932c5ad306c', 'c', 'first word', 0, '2026-11-23 09:37:28');
INSERT INTO version_1.remarks OVERRIDING SYSTEM VALUE VALUES (2, 'remark-1eeb7f68-3c10-43bb-b2a2-636f8b51a9e6', 'c', 'second word', 0, '2026-11-23 09:37:28');
INSERT INTO version_1.threads VALUES (2, 'c', 'manus', 'task of c', '{"max_steps": 3}', 'running', '2026-11-23 09:37:28', '2026-11-23 09:37:28');
INSERT INTO version_1.threads VALUES (1, 'b', 'manus', 'task of b', '{"max_steps": 3}', 'finished', '2026-11-23 09:37:28', '2026-11-23 09:37:28');
INSERT INTO version_1.threads VALUES (3, 'a', 'manus', 'task of a', '{"max_steps": 3}', 'finished', '2026-11-23 09:37:28', '2026-11-23 09:37:28');
INSERT INTO version_1.titles VALUES ('b', 'task of b');
INSERT INTO version_1.titles VALUES ('c', 'task of c');
INSERT INTO version_1.titles VALUES ('a', 'The title of a');
INSERT INTO version_1.user_messages VALUES ('b', '{"type": "human", "data": {"content": "task of b", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": null, "id": "m-b"}}');
INSERT INTO version_1.user_messages VALUES ('c', '{"type": "human", "data": {"content": "task of c", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": null, "id": "m-c"}}');
INSERT INTO version_1.user_messages VALUES ('a', '{"type": "human", "data": {"content": "task of a", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": null, "id": "m-a"}}');
SELECT pg_catalog.setval('version_1.remarks_number_seq', 2, true);
SELECT pg_catalog.setval('version_1.thread_numbers', 3, true);
ALTER TABLE ONLY version_1.a2a_tasks
    ADD CONSTRAINT a2a_tasks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY version_1.checkpoint_blobs
    ADD CONSTRAINT checkpoint_blobs_pkey PRIMARY KEY (thread_id, checkpoint_ns, channel, version);
ALTER TABLE ONLY version_1.checkpoint_migrations
    ADD CONSTRAINT checkpoint_migrations_pkey PRIMARY KEY (v);
ALTER TABLE ONLY version_1.checkpoint_writes
    ADD CONSTRAINT checkpoint_writes_pkey PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx);
ALTER TABLE ONLY version_1.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id);
ALTER TABLE ONLY version_1.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (thread, seq);
ALTER TABLE ONLY version_1.first_sights
    ADD CONSTRAINT first_sights_pkey PRIMARY KEY (thread, branch, namespace, parent, tool, args, "position");
ALTER TABLE ONLY version_1.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (effect);
ALTER TABLE ONLY version_1.questions
    ADD CONSTRAINT questions_pkey PRIMARY KEY (effect, name);
ALTER TABLE ONLY version_1.remarks
    ADD CONSTRAINT remarks_id_key UNIQUE (id);
ALTER TABLE ONLY version_1.remarks
    ADD CONSTRAINT remarks_pkey PRIMARY KEY (number);
ALTER TABLE ONLY version_1.threads
    ADD CONSTRAINT threads_pkey PRIMARY KEY (id);
ALTER TABLE ONLY version_1.titles
    ADD CONSTRAINT titles_pkey PRIMARY KEY (thread);
ALTER TABLE ONLY version_1.user_messages
    ADD CONSTRAINT user_messages_pkey PRIMARY KEY (thread);
CREATE INDEX checkpoint_blobs_thread_id_idx ON version_1.checkpoint_blobs USING btree (thread_id);
CREATE INDEX checkpoint_writes_thread_id_idx ON version_1.checkpoint_writes USING btree (thread_id);
CREATE INDEX checkpoints_thread_id_idx ON version_1.checkpoints USING btree (thread_id);
CREATE INDEX ledger_thread ON version_1.ledger USING btree (thread);
CREATE INDEX questions_thread ON version_1.questions USING btree (thread);
CREATE INDEX remarks_thread ON version_1.remarks USING btree (thread);
CREATE INDEX threads_rowid ON version_1.threads USING btree (rowid);
