-- A connection was made: Redis' run id, for how long nobody reclaims when it is another one than before, the machine's
-- boot id and its mark, for how many seconds the mark is kept.
local run = redis.call('HGET', P .. ':store', 'run')
if run ~= ARGV[2] then
	redis.call('HSET', P .. ':store', 'run', ARGV[2])
	if run then
		own[3] = text(now() + tonumber(ARGV[3]))
		redis.call('HSET', P .. ':store', 'quiet', own[3])
		-- What was given out last may have been lost with the former Redis: no revision and no number is given twice.
		own[4] = text(redis.call('HINCRBY', P .. ':store', 'rev', 1000000))
		redis.call('HINCRBY', P .. ':store', 'next', 1000000)
	end
end
-- The latest time that any host knew: a new process goes on from there.
if now() > tonumber(redis.call('HGET', P .. ':store', 'last') or '0') then
	redis.call('HSET', P .. ':store', 'last', text(now()))
end
redis.call('SET', P .. ':boot:' .. ARGV[4], ARGV[5], 'EX', ARGV[6])
return answer(run and run ~= ARGV[2] and 'RESTARTED' or 'OK')
