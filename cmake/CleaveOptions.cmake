# The language, the warnings, the kinds of build.

option(CLEAVE_WERROR "Treat warnings as errors" OFF)
set(CLEAVE_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
set_property(CACHE CLEAVE_SANITIZE PROPERTY STRINGS "" "address,undefined" "thread")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# A plain build is an optimised one that can still be debugged. No -march=native: kernels choose
# their instruction set when they run, so that one binary serves every machine.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O3 -g -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")

add_compile_definitions(_GNU_SOURCE CLEAVE_VERSION="${PROJECT_VERSION}")
add_compile_options(
  -Wall -Wextra -Wshadow -Wconversion
  # Nobody reads errno after a maths function or traps on floats; results stay IEEE, unlike with
  # -ffast-math, and stay the same with and without FMA hardware.
  -fno-math-errno -fno-trapping-math -ffp-contract=off)
if(CLEAVE_WERROR)
  add_compile_options(-Werror)
endif()
add_link_options(-Wl,--as-needed)

if(CLEAVE_SANITIZE)
  if(NOT CLEAVE_SANITIZE MATCHES "^(address,undefined|thread|address|undefined)$")
    message(FATAL_ERROR "CLEAVE_SANITIZE='${CLEAVE_SANITIZE}' is not one of: "
                        "address,undefined  thread  address  undefined")
  endif()
  # Assertions stay in, and the first report ends the test.
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
  add_compile_options(-fsanitize=${CLEAVE_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CLEAVE_SANITIZE})
endif()
