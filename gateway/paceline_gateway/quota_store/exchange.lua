-- One exchange of quota/pool.py, atomic over all amounts, at Redis's own time. A test holds both to the same answers.
-- KEYS[1]: the tenant's book. ARGV: holder, seq, epoch, TTL_S, FORGET_S, then six vectors of four: limits, back, held,
-- least, want, and belief, which may be missing. A limit of -1 is none.
local RATES, SIZE, CLOSE = 3, 4, 1e-6
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local holder, seq, epoch, ttl, forget = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function vector(number)
  local found = {}
  for kind = 1, SIZE do found[kind] = tonumber(ARGV[5 + (number - 1) * SIZE + kind]) end
  return found
end

local limits, back, held, least, want = vector(1), vector(2), vector(3), vector(4), vector(5)
local belief = #ARGV > 5 + 5 * SIZE and vector(6) or nil

local raw = redis.call('GET', KEYS[1])
local book = raw and cmsgpack.unpack(raw)
if not book then
  book = {limits = limits, levels = {}, base = {}, at = now, epoch = math.floor(now * 1e6), holders = {}}
  for kind = 1, SIZE do book.levels[kind], book.base[kind] = limits[kind], limits[kind] end
end
local levels, base = book.levels, book.base

local function caps()
  local most = {}
  for kind = 1, SIZE do most[kind] = book.limits[kind] end
  for _, other in pairs(book.holders) do
    for kind = 1, SIZE do most[kind] = most[kind] - other.out[kind] end
  end
  return most
end

local passed = math.max(now - book.at, 0)
book.at = math.max(now, book.at)
for name, other in pairs(book.holders) do
  if other.heard + ttl <= now then
    other.out = {0, 0, 0, 0}
    if other.heard + forget <= now then book.holders[name] = nil end
  end
end
local most = caps()
for kind = 1, RATES do
  local limit = book.limits[kind]
  if limit >= 0 then
    levels[kind] = math.min(levels[kind] + passed * limit / 60, most[kind])
    base[kind] = math.min(base[kind] + passed * limit / 60, limit)
  end
end
levels[SIZE] = most[SIZE]

local function fitting()
  local given = {0, 0, 0, 0}
  for kind = 1, SIZE do
    local limit, level = limits[kind], levels[kind]
    if limit >= 0 then
      local enough = kind == SIZE and least[kind] or math.min(least[kind], limit - held[kind])
      if least[kind] > 0 and (level < enough - CLOSE or limit <= 0) then return {0, 0, 0, 0} end
      given[kind] = math.max(least[kind], math.min(want[kind], level), 0)
    end
  end
  given[SIZE] = math.floor(given[SIZE])
  return given
end

local me = book.holders[holder] or {seq = 0, given = {0, 0, 0, 0}}
local given = {0, 0, 0, 0}
if seq > me.seq then
  for kind = 1, SIZE do
    local old, new = book.limits[kind], limits[kind]
    if old ~= new then
      local fresh = old < 0 or new < 0
      levels[kind] = fresh and new or levels[kind] + new - old
      base[kind] = fresh and new or base[kind] + new - old
    end
  end
  book.limits = limits
  if belief and epoch ~= book.epoch then
    for kind = 1, RATES do
      if limits[kind] >= 0 then
        local less = math.max(base[kind] - belief[kind], 0)
        levels[kind], base[kind] = levels[kind] - less, base[kind] - less
      end
    end
  end
  me.seq, me.heard, me.out = seq, now, held
  book.holders[holder] = me
  most = caps()
  for kind = 1, RATES do
    if limits[kind] >= 0 then levels[kind] = math.min(levels[kind] + back[kind], most[kind]) end
  end
  levels[SIZE] = most[SIZE]
  given = fitting()
  local out = {}
  for kind = 1, SIZE do
    levels[kind] = levels[kind] - given[kind]
    out[kind] = held[kind] + given[kind]
    if kind ~= SIZE and given[kind] > 0 then out[kind] = out[kind] - least[kind] end
  end
  me.out, me.given = out, given
elseif seq == me.seq then
  given = me.given
end

local empty = 0
for kind = 1, RATES do
  local limit = book.limits[kind]
  if limit > 0 then empty = math.max(empty, (limit - levels[kind]) * 60 / limit) end
end
local kept = math.floor(math.min(empty, 2592000) + forget) * 1000
redis.call('SET', KEYS[1], cmsgpack.pack(book), 'PX', string.format('%d', kept))

local answer = {string.format('%d', book.epoch)}
for kind = 1, SIZE do answer[1 + kind] = string.format('%.17g', given[kind]) end
for kind = 1, SIZE do answer[5 + kind] = string.format('%.17g', levels[kind]) end
return answer
