# What is linked (target cleave_vendors), and which backends can be built.

set(CLEAVE_WITH_ONEDNN AUTO CACHE STRING "The cpu backend, on oneDNN: AUTO (where found), ON, OFF")
set_property(CACHE CLEAVE_WITH_ONEDNN PROPERTY STRINGS AUTO ON OFF)

find_package(PkgConfig)
if(NOT PkgConfig_FOUND)
  message(FATAL_ERROR "pkg-config is missing: 'make deps' installs what the build needs")
endif()
find_package(Threads REQUIRED)

function(cleave_require module package)
  pkg_check_modules(${module} QUIET IMPORTED_TARGET ${module})
  if(NOT ${module}_FOUND)
    message(FATAL_ERROR "${module} is missing (Debian package ${package}): "
                        "'make deps' installs what the build needs")
  endif()
  target_link_libraries(cleave_vendors INTERFACE PkgConfig::${module})
endfunction()

add_library(cleave_vendors INTERFACE)
cleave_require(jansson libjansson-dev)
cleave_require(zlib zlib1g-dev)
cleave_require(libjpeg libjpeg62-turbo-dev)
cleave_require(libpng libpng-dev)
cleave_require(libxxhash libxxhash-dev)
target_link_libraries(cleave_vendors INTERFACE Threads::Threads m)

# The cpu backend needs oneDNN and OpenMP. It is called there only when its sources are, too.
set(CLEAVE_CPU_BACKEND OFF)
set(CLEAVE_CPU_LIBRARIES "")
if(NOT CLEAVE_WITH_ONEDNN STREQUAL OFF)
  find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
  find_library(ONEDNN_LIBRARY dnnl)
  find_package(OpenMP COMPONENTS C QUIET)
  file(GLOB cpu_files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/backend/cpu/*.c")
  if(ONEDNN_INCLUDE_DIR AND ONEDNN_LIBRARY AND OpenMP_C_FOUND)
    if(cpu_files)
      set(CLEAVE_CPU_BACKEND ON)
      target_link_libraries(cleave_vendors INTERFACE "${ONEDNN_LIBRARY}" ${OpenMP_C_LIBRARIES})
      set(CLEAVE_CPU_LIBRARIES "-ldnnl ${OpenMP_C_FLAGS}")
    endif()
  elseif(CLEAVE_WITH_ONEDNN STREQUAL AUTO)
    message(WARNING "oneDNN or OpenMP for C not found: building without the cpu backend, training "
                    "will be slow ('make deps' installs them)")
  else()
    message(FATAL_ERROR "CLEAVE_WITH_ONEDNN is ON, but oneDNN (Debian package libdnnl-dev) or "
                        "OpenMP for C (gcc, or libomp-dev for clang) was not found")
  endif()
endif()
message(STATUS "cpu backend (oneDNN): ${CLEAVE_CPU_BACKEND}")
