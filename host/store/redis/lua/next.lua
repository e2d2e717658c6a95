-- One number of the deployment's counter.
local out = answer('OK')
out[#out + 1] = text(redis.call('HINCRBY', P .. ':store', 'next', 1))
return out
