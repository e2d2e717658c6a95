-- Nothing but the beginning: is the store there, what time is it.
return answer('OK')
