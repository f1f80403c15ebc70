# cmake -DROOT=a -DPAGES=folder/*.md -DTO=b.cpp -DNAME=kA -P: the files of a below `folder`, by name, as kA[] of magister/core/embedded_page.h.
file(GLOB pages RELATIVE ${ROOT} ${ROOT}/${PAGES})
list(SORT pages)
set(arrays)
set(entries)
set(number 0)
foreach(page IN LISTS pages)
  file(READ ${ROOT}/${page} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "const unsigned char ${NAME}Page${number}[] = {${bytes}};\n")
  string(APPEND entries "    {\"${page}\", ${NAME}Page${number}, sizeof ${NAME}Page${number}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${TO} "#include \"magister/core/embedded_page.h\"
namespace magister {
namespace {
${arrays}}  // namespace
extern const EmbeddedPage ${NAME}[] = {
${entries}    {nullptr, nullptr, 0},
};
}  // namespace magister
")
