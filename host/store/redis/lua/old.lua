-- The oldest entries of a stream that may be trimmed: stream, older than (ms), most. Answers their number and the last id. Reads
-- none that stays for its age: a store that is in use has thousands of those at its head.
local least_ms, least_n = needed_from(ARGV[2])
local out, count, last = answer('OK'), 0, '0-0'
local upto = tonumber(ARGV[3]) - 1
local old = upto >= 0 and redis.call('XRANGE', ARGV[2], '-', text(upto), 'COUNT', ARGV[4]) or {}
for _, entry in ipairs(old) do
	if is_needed(entry[1], least_ms, least_n) then
		break
	end
	count, last = count + 1, entry[1]
end
out[#out + 1], out[#out + 2] = text(count), last
return out
