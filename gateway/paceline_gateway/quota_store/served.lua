-- What tenants were served, summed over all gateways. KEYS[1]: the sums. ARGV: how long they are kept, in milliseconds,
-- and how many at most; then names and amounts to add.
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[2]) then redis.call('DEL', KEYS[1]) end
for at = 3, #ARGV, 2 do redis.call('HINCRBYFLOAT', KEYS[1], ARGV[at], ARGV[at + 1]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HGETALL', KEYS[1])
