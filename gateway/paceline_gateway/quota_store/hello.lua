-- A gateway is alive: how many are. KEYS[1]: all gateways by when they are forgotten. ARGV: holder, TTL_S (0: it leaves).
local clock = redis.call('TIME')
local now, ttl = tonumber(clock[1]) + tonumber(clock[2]) / 1e6, tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if ttl > 0 then
  redis.call('ZADD', KEYS[1], now + ttl, ARGV[1])
  redis.call('PEXPIRE', KEYS[1], math.floor(ttl * 2000))
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return redis.call('ZCARD', KEYS[1])
