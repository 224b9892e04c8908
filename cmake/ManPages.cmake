# Writes every command's manual page into FOLDER, by asking the program for them:
#   cmake -DPROGRAM=build/cleave -DFOLDER=build/man -P ManPages.cmake
# Pages of commands that there are no more go.
execute_process(COMMAND "${PROGRAM}" help --list OUTPUT_VARIABLE commands
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" commands "${commands}")
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")
foreach(command IN ITEMS "" LISTS commands)
  string(REPLACE " " ";" words "${command}")
  string(REPLACE " " "-" page "cleave ${command}")
  string(REGEX REPLACE "-$" "" page "${page}")
  execute_process(COMMAND "${PROGRAM}" help --man ${words} OUTPUT_FILE "${FOLDER}/${page}.1"
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
