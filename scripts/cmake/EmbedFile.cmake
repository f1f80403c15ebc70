# cmake -DFROM=a -DTO=b.cpp -DNAME=kA -P: the bytes of a file as kA[] and kABytes.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${TO} "#include <cstddef>
namespace magister {
extern const unsigned char ${NAME}[] = {${bytes}};
extern const std::size_t ${NAME}Bytes = sizeof ${NAME};
}  // namespace magister
")
