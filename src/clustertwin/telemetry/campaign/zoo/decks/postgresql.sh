# A server on a copy of $INPUTS/db, and pgbench with four clients; both run as the user postgres.
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
run="setpriv --reuid=postgres --regid=postgres --clear-groups"
chown postgres .
rm -rf db
cp -a "$INPUTS/db" db
$run "$bin/postgres" -D "$PWD/db" -k "$PWD/db" -c listen_addresses= -c synchronous_commit=off &
server=$!
for _ in $(seq 50); do "$bin/pg_isready" -q -h "$PWD/db" && break; sleep 0.2; done
$run "$bin/pgbench" -h "$PWD/db" -U postgres -c 4 -j 1 -T 60 bench
code=$?
kill -INT $server
wait $server
exit $code
