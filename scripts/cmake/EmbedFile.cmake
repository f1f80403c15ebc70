# cmake -DFROM=a -DTO=b -P: the bytes of a file as the initialiser of an array.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "${bytes}\n")
