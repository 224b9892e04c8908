# Debian packages, by 'make deb': the program (cleave), the shared library (libcleave0.1), and what
# programs are built with (libcleave-dev). An install() goes into one of them by its COMPONENT; one
# without is the program's. What they depend on is found by dpkg-shlibdeps.
set(copyright_folders program:cleave library:libcleave${CLEAVE_SOVERSION} development:libcleave-dev)
foreach(entry IN LISTS copyright_folders)
  string(REPLACE ":" ";" words "${entry}")
  list(GET words 0 component)
  list(GET words 1 package)
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${package}" RENAME copyright
          COMPONENT "${component}")
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cleave)
set(CPACK_PACKAGE_CONTACT "The Cleave authors <cleave@localhost>")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/deb")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME cleave)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "dataset-fashion-mnist")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION 
    "The program: predicts what every way to split a training over many workers takes, \
recommends the fastest that fits, says why, and trains with it.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME "libcleave${CLEAVE_SOVERSION}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION 
    "The shared library: what the program cleave does, for programs in C and C++.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcleave-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libcleave${CLEAVE_SOVERSION} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS # to link the static library
    "libjansson-dev, zlib1g-dev, libjpeg-dev, libpng-dev, libxxhash-dev, libsqlite3-dev, \
libdnnl-dev, libhwloc-dev, libopenmpi-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION 
    "What programs are built with: header, static library, pkg-config and CMake files, examples.")
include(CPack)
