-- A connection was made: Redis' run id, for how long nobody reclaims when it is another one than before, the machine's
-- boot id and its mark.
local run = redis.call('HGET', P .. ':store', 'run')
if run ~= ARGV[2] then
	redis.call('HSET', P .. ':store', 'run', ARGV[2])
	if run then
		own[3] = text(now() + tonumber(ARGV[3]))
		redis.call('HSET', P .. ':store', 'quiet', own[3])
		-- What was given out last may have been lost with the former Redis: no revision and no number is given twice.
		own[4] = text(redis.call('HINCRBY', P .. ':store', 'rev', 1000000))
		redis.call('HINCRBY', P .. ':store', 'next', 1000000)
		-- Its clock may be another machine's: what was said of the former one is over.
		own[5] = text(redis.call('HINCRBY', P .. ':store', 'moves', 1000))
		redis.call('HDEL', P .. ':store', 'from')
	end
end
-- The latest time that any host knew, by its own word (Redis' clock may just have jumped): a new process goes on from there.
local mark = string.match(ARGV[5], '^%d+')
if tonumber(mark) > tonumber(redis.call('HGET', P .. ':store', 'last') or '0') then
	redis.call('HSET', P .. ':store', 'last', mark)
end
-- Kept without a time to live: that would be judged by the very clock that is in doubt.
if redis.call('HLEN', P .. ':boots') > 64 then
	redis.call('DEL', P .. ':boots')
end
redis.call('HSET', P .. ':boots', ARGV[4], ARGV[5])
return answer(run and run ~= ARGV[2] and 'RESTARTED' or 'OK')
