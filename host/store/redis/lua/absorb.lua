-- A jump of Redis' clock: the offset that was judged, the one that makes up for it, for how long nobody reclaims. Once
-- per jump: whoever comes second finds another offset and judges by that.
if own[2] == ARGV[2] then
	own[2] = ARGV[3]
	own[3] = text(now() + tonumber(ARGV[4]))
	redis.call('HSET', P .. ':store', 'offset', own[2], 'quiet', own[3])
end
return answer('OK')
