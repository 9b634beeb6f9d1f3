# Compiler flags of every target.
#
# Release is -O2: enough for all but the numerics, which ask for more (MILLRACE_HOT_LAYERS), and it
# keeps a build from nothing short. Under a sanitizer -O1 is enough, and its traces are readable.
if(MILLRACE_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  set(MILLRACE_HOT_LAYERS "")
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  set(MILLRACE_HOT_LAYERS tensor kernels attention weights)
endif()

# mold links several times faster than GNU ld; used where it is installed.
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# -ffp-contract=off: a multiply and an add fuse only where the code says fma, so that all instruction
# sets and optimisation levels give the same bits.
add_library(millrace_flags INTERFACE)
target_compile_features(millrace_flags INTERFACE cxx_std_23)
target_compile_options(millrace_flags INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
target_include_directories(millrace_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(millrace_flags INTERFACE Threads::Threads fmt::fmt nlohmann_json::nlohmann_json)

if(MILLRACE_SANITIZE)
  string(REPLACE "," ";" _sanitizers "${MILLRACE_SANITIZE}")
  foreach(_s IN LISTS _sanitizers)
    target_compile_options(millrace_flags INTERFACE -fsanitize=${_s})
    target_link_options(millrace_flags INTERFACE -fsanitize=${_s})
  endforeach()
  target_compile_options(millrace_flags INTERFACE -fno-omit-frame-pointer -fno-sanitize-recover=all)
endif()
