-- Admits requests of one organization to the window that Redis' own clock is in.
--
-- KEYS[1]  the organization's window, a hash: w = the window's number since 1970, n = how many requests it has admitted
-- ARGV[1]  the limit of the window; never stored
-- ARGV[2]  how many requests ask to be admitted
-- ARGV[3]  the length of a window in milliseconds
-- Returns  {n before this call, milliseconds to the end of the window}
--
-- As many requests as the limit leaves room for are counted, the others leave no trace. The key expires by itself.
-- A key that holds something else gets the error WRONGTYPE and is left alone.
local length = tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = math.floor(now / length)

local kept = redis.pcall('HMGET', KEYS[1], 'w', 'n')
if kept.err then
	return kept
end
local last, admitted = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
if not last or not admitted then
	return redis.error_reply('WRONGTYPE the hash holds no window')
end
-- A clock that steps back by less than a window, as after a failover, doesn't open a window anew. What lies further ahead
-- comes from a clock that was wrong.
if last < window or last > window + 1 then
	last, admitted = window, 0
end

local more = math.min(tonumber(ARGV[2]), tonumber(ARGV[1]) - admitted)
if more > 0 then
	redis.call('HSET', KEYS[1], 'w', last, 'n', admitted + more)
	redis.call('PEXPIRE', KEYS[1], 2 * length)
end
return {admitted, (last + 1) * length - now}
