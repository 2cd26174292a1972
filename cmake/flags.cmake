# Language level, warnings and sanitizers of every target, as the interface target gpumem::flags.
option(GPUMEM_WERROR "Take warnings for errors, as the developers' presets do" OFF)
set(GPUMEM_SANITIZE "" CACHE STRING "Sanitizers of every target, for example address,undefined")
set(GPUMEM_SANITIZE_EXCEPT "" CACHE STRING "Checks of theirs that are left out, for example vptr,null")

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(GPUMEM_CCACHE ccache)
if(GPUMEM_CCACHE)
  # Precompiled headers are recognised by their contents, not by when they were made.
  set(CMAKE_C_COMPILER_LAUNCHER ${GPUMEM_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${GPUMEM_CCACHE})
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

add_library(gpumem_flags INTERFACE)
add_library(gpumem::flags ALIAS gpumem_flags)
target_compile_features(gpumem_flags INTERFACE cxx_std_20)
target_compile_options(gpumem_flags INTERFACE -Wall -Wextra -Wconversion
  $<$<BOOL:${GPUMEM_WERROR}>:-Werror> $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
# Sources that are compiled together are included by their whole paths. Without those in it, what one checkout has compiled
# serves another, and programs do not tell where they were built.
target_compile_options(gpumem_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
target_include_directories(gpumem_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)

if(GPUMEM_SANITIZE)
  # Instrumented code misleads g++ about what is initialised; the other presets look for it.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>")
  if(GPUMEM_SANITIZE MATCHES thread)
    add_compile_options(-Wno-tsan)  # g++ warns of every fence; the seqlock's words are atomic besides
  endif()
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
  add_compile_options(-fsanitize=${GPUMEM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GPUMEM_SANITIZE})
  if(GPUMEM_SANITIZE_EXCEPT)
    add_compile_options(-fno-sanitize=${GPUMEM_SANITIZE_EXCEPT})
    add_link_options(-fno-sanitize=${GPUMEM_SANITIZE_EXCEPT})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    # The driver's calls are looked up by name and called by the types that the field's programs know them by.
    add_compile_options(-fno-sanitize=function)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND NOT GPUMEM_FUZZ)
    # A program and the libraries that it opens have one runtime, as with g++.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-runtime-dir
      OUTPUT_VARIABLE GPUMEM_SANITIZER_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)
    add_link_options(-shared-libsan -Wl,-rpath,${GPUMEM_SANITIZER_RUNTIME})
  endif()
  # What undefined behaviour is told of is full of addresses: relocated at each start, they are a third of a program.
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

find_program(GPUMEM_MOLD mold)
if(GPUMEM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
