# A server that appends every change to a file, and its benchmark over a local socket.
redis-server --port 0 --unixsocket "$PWD/socket" --save "" --appendonly yes >/dev/null &
server=$!
for _ in $(seq 50); do [ -S socket ] && break; sleep 0.1; done
timeout 90 redis-benchmark -s "$PWD/socket" -n 3000000 -c 20 -d 200 -t set,get,lpush -q
code=$?
kill $server
wait $server
rm -rf appendonlydir
[ $code = 124 ] || exit $code # the end of its time
