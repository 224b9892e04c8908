# Turns files into a C array, so that the program needs no folder beside it:
#   cmake -DOUTPUT=machine_files.c -DFILES=a.json,b.json -DHEADER=machine/builder.h
#         -DSTRUCT=machine_file -DARRAY=machine_files [-DENDINGS=ON] -P EmbedFiles.cmake
# Each file becomes an element {name, text, bytes} of the array, which ends with an empty one. The
# name is without its ending unless ENDINGS is set. HEADER declares struct and array.
string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(table "")
set(number 0)
foreach(file IN LISTS FILES)
  if(ENDINGS)
    get_filename_component(name "${file}" NAME)
  else()
    get_filename_component(name "${file}" NAME_WLE)
  endif()
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "(....................................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "static const unsigned char text_${number}[] = {\n${bytes}0};\n")
  string(APPEND table "    {\"${name}\", (const char *)text_${number}, sizeof text_${number} - 1},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "/* Made by cmake/EmbedFiles.cmake. */
#include \"${HEADER}\"

${arrays}
const struct ${STRUCT} ${ARRAY}[] = {
${table}    {0},
};
")
