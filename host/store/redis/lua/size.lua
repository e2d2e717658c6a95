-- How many entries a stream has.
local info = redis.pcall('XINFO', 'STREAM', ARGV[2])
local out = answer('OK')
out[#out + 1] = info.err and '0' or text(field_of(info, 'length'))
return out
