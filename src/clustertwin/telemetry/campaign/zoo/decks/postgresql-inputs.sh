# An empty cluster and the tables of pgbench, half a million accounts.
set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
run="setpriv --reuid=postgres --regid=postgres --clear-groups"
mkdir db
chown postgres . db
$run "$bin/initdb" -D "$PWD/db" -A trust --no-sync
$run "$bin/pg_ctl" -D "$PWD/db" -w -o "-k $PWD/db -c listen_addresses=" start >/dev/null
$run "$bin/createdb" -h "$PWD/db" bench
$run "$bin/pgbench" -i -s 5 -h "$PWD/db" -U postgres bench
$run "$bin/pg_ctl" -D "$PWD/db" -w stop
