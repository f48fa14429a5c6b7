-- Lua scripts of ``RedisHotStore``.
--
-- Each script is one atomic step. It uses the hash of one conversation, and the expiry index of the conversation's bucket (group
-- of conversations with the same hash tag). A script is the text after its heading "--- NAME", preceded by the common parts
-- that ``redis_hot_store.py`` names.
--
-- The hash of a conversation has these control fields: "e" is the epoch, "v" the version, "s" the state, "t" the TTL, "x" the
-- logical expiry, and "k" the time when a sweeper claimed the conversation. The fields of the caller have the prefix "f:".
--
-- All control fields except the state are integers. Times are in milliseconds of the server's clock. The last two digits of a
-- time are check digits (the time modulo 97), which reveal a damaged time.
--
-- A script returns {'corrupt', field}, and writes nothing, if a control field is invalid. Such a conversation can only be replaced by a tombstone (record of a deletion).

--- PARSING
-- Common part: keys, time, and functions that read the control fields.
local key, index = KEYS[1], KEYS[2]
local member = string.match(key, '}:c:(.*)$')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number) return string.format('%.0f', number) end

local function whole(value)
  if value and #value <= 15 and string.find(value, '^%d+$') then return tonumber(value) end
end

local function checked(number) return text(number) .. string.format('%02d', number % 97) end

local function unchecked(value)
  local number = value and whole(string.sub(value, 1, -3))
  if number and value == checked(number) then return number end
end

local function stored()
  local raw = redis.call('HMGET', key, 'e', 'v', 's', 't', 'x', 'k')
  if not raw[1] and not raw[2] and not raw[3] and redis.call('EXISTS', key) == 0 then return nil end
  local kept = {e = whole(raw[1]), v = whole(raw[2]), s = raw[3]}
  if not kept.e then return nil, 'e' end
  if not kept.v then return nil, 'v' end
  if kept.s == 'deleted' then return kept end
  if kept.s ~= 'active' and kept.s ~= 'closing' then return nil, 's' end
  kept.t, kept.x, kept.k = unchecked(raw[4]), unchecked(raw[5]), unchecked(raw[6])
  if not kept.t then return nil, 't' end
  if not kept.x then return nil, 'x' end
  if kept.s == 'closing' and not kept.k then return nil, 'k' end
  return kept
end

--- CONVERSATION
-- Common part: the stored conversation, which must be valid.
local kept, bad = stored()
if bad then return {'corrupt', bad} end

--- LOAD
local touch, grace = ARGV[1], tonumber(ARGV[2])
if not kept then return false end
if kept.s == 'deleted' then return {'ok', text(kept.e), text(kept.v), kept.s, '0', '0', {}} end

local names = {}
for i = 3, #ARGV do names[#names + 1] = ARGV[i] end
if names[1] == '*' then
  names = {}
  for _, name in ipairs(redis.call('HKEYS', key)) do names[#names + 1] = string.match(name, '^f:(.*)$') end
end

-- If the server refuses writes, for example because its memory is full, the conversation is read without a new TTL.
local function refused(answer)
  local words = type(answer) == 'table' and answer.err or ''
  return string.find(words, 'OOM') or string.find(words, 'MISCONF') or string.find(words, 'NOREPLICAS')
end

if touch == '1' and kept.s == 'active' and kept.x > now and not refused(redis.pcall('HSET', key, 's', 'active')) then
  kept.x = now + kept.t
  redis.call('HSET', key, 'x', checked(kept.x))
  redis.call('PEXPIRE', key, text(kept.t + grace))
  redis.call('ZADD', index, text(kept.x), member)
end

local found = {}
for start = 1, #names, 5000 do
  local fields = {}
  for i = start, math.min(start + 4999, #names) do fields[#fields + 1] = 'f:' .. names[i] end
  local values = redis.call('HMGET', key, unpack(fields))
  for i = 1, #fields do
    if values[i] then
      found[#found + 1] = names[start + i - 1]
      found[#found + 1] = values[i]
    end
  end
end
return {'ok', text(kept.e), text(kept.v), kept.s, text(kept.t), text(kept.x - now), found}

--- WRITE
-- Compares and writes. It also removes index entries of expired hashes, so that the index stays small without a sweeper.
local control = {}
for word in string.gmatch(ARGV[1], '%S+') do control[#control + 1] = tonumber(word) or false end
local expected_epoch, expected_version, epoch, version, ttl, grace, replaced, removed = unpack(control)

if kept then
  if kept.e == epoch and kept.v == version then return {'ok', 1} end
  local fits
  if kept.s == 'deleted' then
    fits = not expected_epoch and kept.e < epoch
  else
    fits = kept.e == expected_epoch and kept.v == expected_version and (kept.s == 'active' or kept.e < epoch)
  end
  if not fits then return {'ok', 0} end
  if replaced == 1 or kept.s == 'deleted' then
    redis.call('DEL', key)
  else
    for first = 2, 1 + removed, 5000 do
      local fields = {}
      for i = first, math.min(first + 4999, 1 + removed) do fields[#fields + 1] = 'f:' .. ARGV[i] end
      redis.call('HDEL', key, unpack(fields))
    end
  end
elseif expected_epoch then
  return {'ok', 0}
end

local expiry = now + ttl
local values = {'e', text(epoch), 'v', text(version), 's', 'active', 't', checked(ttl), 'x', checked(expiry)}
for i = 2 + removed, #ARGV, 2 do
  values[#values + 1] = 'f:' .. ARGV[i]
  values[#values + 1] = ARGV[i + 1]
  if #values >= 5000 then
    redis.call('HSET', key, unpack(values))
    values = {'s', 'active'}
  end
end
redis.call('HSET', key, unpack(values))
redis.call('PEXPIRE', key, text(ttl + grace))
redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. text(now - grace))
redis.call('ZADD', index, text(expiry), member)
return {'ok', 1}

--- PUT_TOMBSTONE
-- Replaces a conversation by a tombstone. A damaged conversation can be replaced, too.
local epoch = (whole(redis.call('HGET', key, 'e')) or 0) + 1
redis.call('DEL', key)
redis.call('HSET', key, 'e', text(epoch), 'v', '0', 's', 'deleted')
redis.call('PEXPIRE', key, ARGV[1])
redis.call('ZREM', index, member)
return {'ok', text(epoch)}

--- CLAIM
local lease, expired_only = tonumber(ARGV[1]), ARGV[2] == '1'
if not kept then
  redis.call('ZREM', index, member)
  return false
end
local due = kept.s == 'active' and (kept.x <= now or not expired_only) or kept.s == 'closing' and now - kept.k > lease
if not due then return false end
redis.call('HSET', key, 's', 'closing', 'k', checked(now))
return {'ok', text(kept.e), text(kept.v), 'closing', text(kept.t), text(kept.x - now), {}}

--- DROP
local epoch, version = tonumber(ARGV[1]), tonumber(ARGV[2])
if not kept or kept.s ~= 'closing' or kept.e ~= epoch or kept.v ~= version then return {'ok', 0} end
redis.call('DEL', key)
redis.call('ZREM', index, member)
return {'ok', 1}

--- NOW
local time = redis.call('TIME')
return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

--- REPLACE
-- Compares and stores a value. A value that is stored already counts as written, because a request may be sent again.
local stored = redis.call('GET', KEYS[1])
if stored ~= ARGV[2] and (stored and redis.sha1hex(stored) or '') ~= ARGV[1] then return 0 end
if ARGV[3] == '0' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
