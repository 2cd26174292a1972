# Headers that a target's sources spend most of their compile time on, read once. The project's own are in none: touching
# one recompiles only what includes it. From precompiled headers g++ 12 takes libstdc++'s code for ours, and may warn of a
# string's bounds that are kept: such a source has SKIP_PRECOMPILE_HEADERS.

# gpumem_precompile(TARGET): the standard library's. It pays where sources are small and cannot be compiled together.
function(gpumem_precompile target)
  target_precompile_headers(${target} PRIVATE
    <algorithm> <chrono> <functional> <map> <memory> <mutex> <optional> <set> <string> <vector>)
endfunction()

# gpumem_precompile_gtest(TARGET): if it is a program of tests, GoogleTest's headers, which are most of what a test costs
# to compile.
function(gpumem_precompile_gtest target)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if("GTest::gtest_main" IN_LIST libraries)
    set(headers <gtest/gtest.h> <map> <string> <vector>)
    if("GTest::gmock" IN_LIST libraries)
      list(APPEND headers <gmock/gmock.h>)
    endif()
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()
