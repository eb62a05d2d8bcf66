PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, who TEXT NOT NULL, action TEXT NOT NULL,
  subject TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL
) STRICT;
INSERT INTO "audit" VALUES(1,10100.0,'ada','vet','e1','{"verdict": "", "who": "", "comment": "", "vetted_s": null}','{"verdict": "confirmed", "who": "ada", "comment": "disk 3", "vetted_s": 10100.0}');
INSERT INTO "audit" VALUES(2,10000.0,'ada','maintenance','maintenance 1','{}','{"nodes": ["n0*"], "start_s": 10000.0, "end_s": 4000000000.0, "reason": "new disks", "who": "ada", "id": 1}');
INSERT INTO "audit" VALUES(3,10000.0,'ada','silence','silence 1','{}','{"until_s": 4000000000.0, "node": "", "job": "17", "owner": "", "view": "", "reason": "known", "who": "ada", "id": 1}');
CREATE TABLE events (
  id TEXT PRIMARY KEY, places TEXT NOT NULL, jobs TEXT NOT NULL, owner TEXT NOT NULL,
  onset_s INTEGER NOT NULL, seen_s INTEGER NOT NULL, end_s INTEGER,
  score REAL NOT NULL, view TEXT NOT NULL, model TEXT NOT NULL, why TEXT,
  verdict TEXT NOT NULL DEFAULT '', who TEXT NOT NULL DEFAULT '', comment TEXT NOT NULL DEFAULT '', vetted_s REAL
) STRICT;
INSERT INTO "events" VALUES('e1','[["n1", [0, 1]]]','["17"]','ada',9800,9990,10000,4.5,'reconstruction','ae-0123','{"view": "reconstruction", "start_s": 9890, "end_s": 9990, "far_s": 80, "threads": 2, "neighbours": 2, "neighbours_of": "node", "ratios": [{"channel": "iowait", "seen": 0.7, "expected": 0.02, "neighbours": null}], "nearest": [], "region": "", "distance": null, "kept": null}','confirmed','ada','disk 3',10100.0);
CREATE TABLE maintenance (
  id INTEGER PRIMARY KEY AUTOINCREMENT, nodes TEXT NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL,
  reason TEXT NOT NULL, who TEXT NOT NULL
) STRICT;
INSERT INTO "maintenance" VALUES(1,'["n0*"]',10000.0,4000000000.0,'new disks','ada');
CREATE TABLE silences (
  id INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, job TEXT NOT NULL, owner TEXT NOT NULL,
  view TEXT NOT NULL, until_s REAL NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL
) STRICT;
INSERT INTO "silences" VALUES(1,'','17','','',4000000000.0,'known','ada');
CREATE TABLE tokens (
  name TEXT PRIMARY KEY, role TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, made_s REAL NOT NULL
) STRICT;
CREATE INDEX events_by_onset ON events (onset_s DESC, id);
CREATE INDEX events_open ON events (onset_s DESC, id) WHERE end_s IS NULL;
CREATE INDEX audit_by_subject ON audit (subject, id);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit only grows'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',3);
INSERT INTO "sqlite_sequence" VALUES('maintenance',1);
INSERT INTO "sqlite_sequence" VALUES('silences',1);
COMMIT;
