-- How many rows of a table have a due.
local out = answer('OK')
out[#out + 1] = text(redis.call('ZCARD', P .. ':' .. ARGV[2] .. ':due'))
return out
