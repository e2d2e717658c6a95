-- The oldest entries of a stream that may be trimmed: stream, older than (ms), most. Answers their number and the last id.
local least_ms, least_n = needed_from(ARGV[2])
local out, count, last = answer('OK'), 0, '0-0'
for _, entry in ipairs(redis.call('XRANGE', ARGV[2], '-', '+', 'COUNT', ARGV[4])) do
	if id_parts(entry[1]) >= tonumber(ARGV[3]) or is_needed(entry[1], least_ms, least_n) then
		break
	end
	count, last = count + 1, entry[1]
end
out[#out + 1], out[#out + 2] = text(count), last
return out
