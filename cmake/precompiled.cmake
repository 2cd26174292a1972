# Headers that a target's sources spend most of their compile time on, read once. The project's own are in none: touching
# one recompiles only what includes it. From precompiled headers g++ 12 takes libstdc++'s code for ours, and may warn of a
# string's bounds that are kept: such a source has SKIP_PRECOMPILE_HEADERS.

# gpumem_precompile(TARGET): the standard library's. It pays where sources are small and cannot be compiled together.
function(gpumem_precompile target)
  target_precompile_headers(${target} PRIVATE
    <algorithm> <chrono> <functional> <map> <memory> <mutex> <optional> <set> <string> <vector>)
endfunction()

# gpumem_precompile_gtest(TARGET KIND): if it is a program of tests, GoogleTest's headers, which are most of what a test costs
# to compile. Programs of one KIND, which are compiled with the same options, share them.
function(gpumem_precompile_gtest target kind)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if(NOT "GTest::gtest_main" IN_LIST libraries AND NOT "GTest::gtest" IN_LIST libraries)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL EXECUTABLE)
    return()
  endif()
  set(shared gpumem_gtest_headers_${kind})
  if(NOT TARGET ${shared})
    file(WRITE ${CMAKE_BINARY_DIR}/gtest_headers.cc "int main() {}\n")
    add_executable(${shared} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/gtest_headers.cc)
    target_link_libraries(${shared} PRIVATE gpumem::flags GTest::gmock)
    target_precompile_headers(${shared} PRIVATE <gtest/gtest.h> <gmock/gmock.h> <map> <string> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()
