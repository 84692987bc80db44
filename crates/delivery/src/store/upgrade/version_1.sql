-- A store of version 1 as its own code wrote it: the dump of one after a crash, with all kinds of rows.
BEGIN TRANSACTION;
CREATE TABLE bodies (seq INTEGER PRIMARY KEY, payload NOT NULL);
INSERT INTO "bodies" VALUES(1,'1');
INSERT INTO "bodies" VALUES(2,'1');
INSERT INTO "bodies" VALUES(3,'{"text":"café ''x''"}');
INSERT INTO "bodies" VALUES(4,X'00FF6279746573');
INSERT INTO "bodies" VALUES(5,'1');
INSERT INTO "bodies" VALUES(6,'"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"');
INSERT INTO "bodies" VALUES(7,'1');
INSERT INTO "bodies" VALUES(8,'1');
CREATE TABLE cancels (
        name INTEGER NOT NULL, key TEXT, id TEXT NOT NULL, at_ms INTEGER NOT NULL,
        until_ms INTEGER NOT NULL -- it is kept so long, even where ids are not
    );
INSERT INTO "cancels" VALUES(2287651424846541281,'k','not come',100,0);
INSERT INTO "cancels" VALUES(-7025595999187933563,NULL,'café',200,9999);
CREATE TABLE dead_letters (
        n INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        source TEXT NOT NULL,
        line INTEGER NOT NULL,
        reason TEXT NOT NULL,
        allowed TEXT NOT NULL,
        record BLOB NOT NULL
    );
INSERT INTO "dead_letters" VALUES(1,150,'in.ndjson',3,'why','what',X'FF7B7D');
INSERT INTO "dead_letters" VALUES(2,150,'to',0,'refused','2xx',X'7B7D');
CREATE TABLE ids (name INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (name, seq)) WITHOUT ROWID;
CREATE TABLE inputs (source TEXT PRIMARY KEY, line INTEGER NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL);
INSERT INTO "inputs" VALUES('in.ndjson',12,345,X'000102030405060708090A0B0C0D0E0F');
CREATE TABLE ledger (
        n INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        outcome INTEGER NOT NULL, -- 1 delivered, 2 cancelled, 3 dead letter
        at_ms INTEGER NOT NULL,
        lateness_us INTEGER,
        attempts INTEGER NOT NULL,
        redelivered INTEGER NOT NULL
    );
INSERT INTO "ledger" VALUES(1,1,1,1001,900,1,0);
INSERT INTO "ledger" VALUES(2,3,3,86400005,NULL,5,1);
INSERT INTO "ledger" VALUES(3,7,2,259200000,NULL,0,0);
INSERT INTO "ledger" VALUES(4,5,1,172800000,10,2,1);
CREATE TABLE messages (
        seq INTEGER PRIMARY KEY,
        name INTEGER NOT NULL,
        due_ms INTEGER NOT NULL,
        key TEXT,
        id TEXT NOT NULL,
        content BLOB NOT NULL,
        outcome INTEGER -- where it is not delivery
    );
INSERT INTO "messages" VALUES(1,7546337611322360514,1000,NULL,'a',X'00CA3411ABA1A94F19A977B52F96FE',NULL);
INSERT INTO "messages" VALUES(2,-3761209938499623774,2000,'k','b',X'6974A1FA63C21F59DEE36BB67F2327',NULL);
INSERT INTO "messages" VALUES(3,-1467374971885513158,3000,'k','c',X'57420315CF5E70339D462CBBCF7975',3);
INSERT INTO "messages" VALUES(4,994964604753086443,4000,'','d',X'C23A2A278A10E10BF72113F998CA712E',NULL);
INSERT INTO "messages" VALUES(5,-2996851643491391048,5000,'キー','日本',X'AA1940035F52D21FC136151DACD8EE',NULL);
INSERT INTO "messages" VALUES(6,3042048485241259485,6000,NULL,'f',X'3C6E56A8EEC70378D9FAF21FBF3070',NULL);
INSERT INTO "messages" VALUES(7,855021437879918281,7000,'5:g','g',X'0833609F32E6400C28F76AA11C9EA2',2);
INSERT INTO "messages" VALUES(8,-3977050832846255122,9000000000000,'far','h',X'8566E3AFF120FC34D8857B1B365EB6',NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO "meta" VALUES('handed_until_ms',4000);
INSERT INTO "meta" VALUES('letters_written',1);
INSERT INTO "meta" VALUES('position','here');
INSERT INTO "meta" VALUES('store_id','00112233445566778899aabbccddeeff');
CREATE TABLE waiting (
        due_ms INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        lane INTEGER, -- the number of the key; NULL: no key
        size INTEGER NOT NULL, -- bytes in memory
        redelivered INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (due_ms, seq)
    ) WITHOUT ROWID;
INSERT INTO "waiting" VALUES(2000,2,7193521810918036140,703,0);
INSERT INTO "waiting" VALUES(4000,4,-5426141060434712860,708,0);
INSERT INTO "waiting" VALUES(6000,6,NULL,1003,0);
INSERT INTO "waiting" VALUES(9000000000000,8,7268618033477025877,705,1);
CREATE INDEX cancels_by_name ON cancels (name);
COMMIT;
PRAGMA application_id = 1953063787;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
