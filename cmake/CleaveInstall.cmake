# The library as others use it. Of its symbols only those of include/cleave are to be seen: objects
# are compiled hidden, and the installed static library is one object in which what is hidden is
# local, so that its inner names cannot clash with those of a program that links it.

# The header says its version, for programs to ask the compiler; it is the project's.
set(public_header "${CMAKE_CURRENT_SOURCE_DIR}/include/cleave/cleave.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${public_header}")
file(STRINGS "${public_header}" header_lines
     REGEX "^#define CLEAVE_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" header_version "${header_lines}")
list(JOIN header_version "." header_version)
if(NOT header_version VERSION_EQUAL PROJECT_VERSION)
  message(FATAL_ERROR "include/cleave/cleave.h has version ${header_version}, the project "
                      "${PROJECT_VERSION}: make them the same")
endif()

# ---- shared --------------------------------------------------------------------------------------
add_library(libcleave_shared SHARED $<TARGET_OBJECTS:libcleave>)
# While the major version is 0, a minor one may change what there is.
set(CLEAVE_SOVERSION "${PROJECT_VERSION_MAJOR}")
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(CLEAVE_SOVERSION "0.${PROJECT_VERSION_MINOR}")
endif()
set_target_properties(libcleave_shared PROPERTIES OUTPUT_NAME cleave EXPORT_NAME cleave
                      LINKER_LANGUAGE C VERSION "${PROJECT_VERSION}"
                      SOVERSION "${CLEAVE_SOVERSION}")
target_link_libraries(libcleave_shared PRIVATE cleave_vendors)
target_include_directories(libcleave_shared INTERFACE
                           "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")

# ---- static --------------------------------------------------------------------------------------
set(static_library "${CMAKE_CURRENT_BINARY_DIR}/static/libcleave.a")
add_custom_command(
  OUTPUT "${static_library}"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_CURRENT_BINARY_DIR}/static"
  COMMAND "${CMAKE_LINKER}" -r -o static/cleave.o "$<TARGET_OBJECTS:libcleave>"
  COMMAND "${CMAKE_OBJCOPY}" --localize-hidden --strip-debug static/cleave.o
  COMMAND "${CMAKE_COMMAND}" -E rm -f "${static_library}"
  COMMAND "${CMAKE_AR}" rcs "${static_library}" static/cleave.o
  DEPENDS libcleave "$<TARGET_OBJECTS:libcleave>"
  WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}" COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(libcleave_static ALL DEPENDS "${static_library}")

# ---- what finds them: pkg-config, find_package(cleave) -------------------------------------------
# The .pc file finds its prefix from where it lies, so that any --prefix works.
file(RELATIVE_PATH pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/cleave.pc.in cleave.pc @ONLY)

include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/cleave")
configure_package_config_file(cmake/cleave-config.cmake.in cleave-config.cmake
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file(cleave-config-version.cmake COMPATIBILITY SameMinorVersion)

# ---- installing ----------------------------------------------------------------------------------
install(TARGETS libcleave_shared EXPORT cleave-targets
        LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(FILES "${static_library}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(DIRECTORY include/cleave TYPE INCLUDE COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/cleave.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
install(EXPORT cleave-targets NAMESPACE cleave:: DESTINATION "${package_folder}"
        COMPONENT development)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/cleave-config.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/cleave-config-version.cmake"
        DESTINATION "${package_folder}" COMPONENT development)
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/cleave" COMPONENT development
        FILES_MATCHING PATTERN "*.c" PATTERN "CMakeLists.txt")
