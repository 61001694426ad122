-- Builds a database of @ROWS@ rows of about a kilobyte in memory, and asks it.
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -4000;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, class INTEGER, price REAL, body BLOB);
INSERT INTO item
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < @ROWS@)
SELECT i, printf('item %08x', i * 2654435761 % 4294967296), i % 101, (i * 37 % 10007) / 100.0,
       CAST(substr(replace(hex(zeroblob(60)), '00', printf('%08x%08d', i * 2654435761 % 4294967296, i)), 1, 600 + i % 500) AS BLOB)
FROM n;
CREATE INDEX item_name ON item(name);
CREATE INDEX item_class ON item(class, price);
SELECT count(*), sum(length(body)), min(name), max(name) FROM item;
SELECT class, count(*), round(sum(price), 2) FROM item GROUP BY class ORDER BY 3 DESC, 1 LIMIT 5;
SELECT a.id, b.id FROM item a JOIN item b ON b.name > a.name AND b.class = a.class + 1 AND b.price = a.price
WHERE a.id < 2000 ORDER BY 1, 2 LIMIT 5;
BEGIN;
UPDATE item SET body = body || body, price = price + 1 WHERE id % 7 = 0;
SELECT sum(length(body)) FROM item;
ROLLBACK;
UPDATE item SET name = name || ' again' WHERE class = 50;
DELETE FROM item WHERE id % 5 = 1;
INSERT INTO item SELECT id + 10 * @ROWS@, name, class, price, body FROM item WHERE class < 20;
SELECT count(*), sum(length(body)), round(total(price), 2) FROM item;
SELECT group_concat(name, '/') FROM (SELECT name FROM item ORDER BY name DESC LIMIT 4);
WITH w AS (SELECT id, class, price, rank() OVER (PARTITION BY class ORDER BY price DESC, id) AS r FROM item)
SELECT sum(id), count(*) FROM w WHERE r <= 3;
SELECT count(DISTINCT substr(body, 1, 8)) FROM item;
SELECT count(*) FROM item WHERE CAST(body AS TEXT) LIKE '%0001%';
CREATE TEMP TABLE sorted AS SELECT substr(body, 1, 40) AS b FROM item ORDER BY body DESC;
SELECT count(*), min(rowid), hex(b) FROM sorted WHERE rowid % 997 = 5;
PRAGMA integrity_check;
PRAGMA page_count;
VACUUM;
PRAGMA page_count;
.sha3sum item
