# Turns files into a C array, so that the program needs no folder beside it:
#   cmake -DOUTPUT=machine_files.c -DFILES=a.json,b.json -P EmbedFiles.cmake
# Each file becomes an element {name without its ending, text, bytes} of machine_files (parts.h).
string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(table "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME_WLE)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(....................................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "static const char text_${number}[] = {\n${bytes}0};\n")
  string(APPEND table "    {\"${name}\", text_${number}, sizeof text_${number} - 1},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "/* Made from machines/ by cmake/EmbedFiles.cmake. */
#include \"machine/parts.h\"

${arrays}
const struct machine_file machine_files[] = {
${table}    {0},
};
")
