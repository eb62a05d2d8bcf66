PRAGMA journal_mode = WAL;
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, note TEXT);
WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < 400000)
INSERT INTO orders SELECT k, (k * 7919) % 5000, (k * 104729) % 1000 / 10.0, hex(k * 2654435761) FROM n;
CREATE INDEX by_customer ON orders (customer);
SELECT count(*), sum(a.amount) FROM orders a JOIN orders b ON a.customer = b.customer WHERE a.id % 97 = 0;
UPDATE orders SET amount = amount * 1.01 WHERE customer % 3 = 0;
DELETE FROM orders WHERE note LIKE '%F0%';
VACUUM;
