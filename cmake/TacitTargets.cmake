# SPDX-License-Identifier: Apache-2.0
# Every room is found by glob: adding a file needs no edit here.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

find_program(TACIT_CCACHE ccache)
if(TACIT_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${TACIT_CCACHE})
endif()

find_package(Threads REQUIRED)

add_library(tacit_flags INTERFACE)
target_include_directories(tacit_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_options(tacit_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wpointer-arith
  -Wwrite-strings -fno-strict-aliasing -ffp-contract=off -fno-math-errno)
target_compile_definitions(tacit_flags INTERFACE _GNU_SOURCE
  TACIT_VERSION_STRING="${PROJECT_VERSION}")
if(TACIT_WERROR)
  target_compile_options(tacit_flags INTERFACE -Werror)
endif()
if(TACIT_SANITIZE)
  target_compile_options(tacit_flags INTERFACE -fsanitize=${TACIT_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(tacit_flags INTERFACE -fsanitize=${TACIT_SANITIZE})
endif()
if(TACIT_FUZZ)
  target_compile_options(tacit_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_libraries(tacit_flags INTERFACE m Threads::Threads ${CMAKE_DL_LIBS})

include(TacitOptional)
include(TacitCuda)

set(rooms base token ir op load pass diff plan prog cpu task fss cuda secure api)
set(sources)
foreach(room ${rooms})
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.c)
  list(APPEND sources ${found})
endforeach()

# fss: loops over batches, worth the vectoriser's full effort everywhere. task: submitting a task is
# a path of many small functions, worth inlining. index: rows that are scattered by plain loops.
foreach(source ${sources})
  if(source MATCHES "/src/(fss|task)/|/src/cpu/index.c")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-O3")
  endif()
endforeach()

# A kernel file's suffix names the instructions it may use; it runs only after cpu_detect agreed.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  foreach(source ${sources})
    if(source MATCHES "_avx2\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3")
    elseif(source MATCHES "_avx512\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-mprefer-vector-width=512;-O3")
    elseif(source MATCHES "_vnni\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mavx512vbmi;-mfma;-mf16c;-O3")
    elseif(source MATCHES "_vbmi2\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vbmi2;-mfma;-mf16c;-mprefer-vector-width=512;-O3")
    elseif(source MATCHES "_ifma\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512ifma;-mavx512vbmi;-O3")
    elseif(source MATCHES "_vaes\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mvaes;-maes;-mpclmul;-mvpclmulqdq;-O3")
    elseif(source MATCHES "_aesni\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-maes;-msse4.1;-mpclmul;-O3")
    endif()
  endforeach()
endif()

# Intel's processors up to Comet Lake do not keep code whose branch touches the end of 32 bytes (their
# erratum SKX102): a register tile then waits for its own instructions, or not, as it happens to lie.
include(CheckCCompilerFlag)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(branches "-Wa,-mbranches-within-32B-boundaries")
else()
  set(branches "-mbranches-within-32B-boundaries")
endif()
check_c_compiler_flag("${branches}" TACIT_BRANCHES_WITHIN)
foreach(source ${sources})
  if(TACIT_BRANCHES_WITHIN AND source MATCHES "_(avx2|avx512|vnni)\\.c$")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "${branches}")
  endif()
endforeach()

# Unrolled register tiles take minutes to compile with every check inline: there checks of addresses are
# calls, and the portable form of the same kernel has the others.
if(TACIT_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  foreach(source ${sources})
    if(source MATCHES "_(avx2|avx512|vnni|vbmi2|ifma|vaes|aesni)\\.c$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        --param=asan-instrumentation-with-call-threshold=0 -fno-sanitize=undefined)
    endif()
  endforeach()
endif()
# The portable form is one function of many loops: with every check inline, full optimisation takes long.
if(TACIT_SANITIZE)
  foreach(source ${sources})
    if(source MATCHES "/src/cpu/.*_portable\\.c$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O1)
    endif()
  endforeach()
endif()
# What is fuzzed are parsers.
if(TACIT_FUZZ)
  foreach(source ${sources})
    if(source MATCHES "_(avx2|avx512|vnni|vbmi2|ifma|vaes|aesni)\\.c$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
    endif()
  endforeach()
endif()

# Opening a model is a walk through much code that lies far apart and has never run: what it needs is
# placed together, where the linker can, and symbols are bound before rather than one by one meanwhile.
include(CheckLinkerFlag)
set(opening ${CMAKE_SOURCE_DIR}/cmake/opening.ld)
check_linker_flag(C "-Wl,-T,${opening}" TACIT_LINKER_PLACES)
check_linker_flag(C "-Wl,-z,now" TACIT_LINKER_BINDS)
foreach(source ${sources})
  if(TACIT_LINKER_PLACES AND NOT source MATCHES "/src/cpu/") # kernels are placed as they are
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -ffunction-sections)
  endif()
endforeach()
function(tacit_opens_fast target)
  if(TACIT_LINKER_PLACES)
    target_link_options(${target} PRIVATE "-Wl,-T,${opening}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${opening})
  endif()
  if(TACIT_LINKER_BINDS)
    target_link_options(${target} PRIVATE "-Wl,-z,now")
  endif()
endfunction()

add_library(tacit_objects OBJECT ${sources})
if(cuda_objects)
  add_custom_target(tacit_cuda DEPENDS ${cuda_objects})
  add_dependencies(tacit_objects tacit_cuda)
endif()
target_link_libraries(tacit_objects PUBLIC tacit_flags tacit_optional)

add_library(tacit_static STATIC $<TARGET_OBJECTS:tacit_objects> ${cuda_objects})
target_link_libraries(tacit_static PUBLIC tacit_flags tacit_optional)
set_target_properties(tacit_static PROPERTIES OUTPUT_NAME tacit)

add_library(tacit_shared SHARED $<TARGET_OBJECTS:tacit_objects> ${cuda_objects})
set_source_files_properties(${cuda_objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
target_link_libraries(tacit_shared PRIVATE tacit_flags tacit_optional)
set_target_properties(tacit_shared PROPERTIES OUTPUT_NAME tacit VERSION ${PROJECT_VERSION} SOVERSION 0)
tacit_opens_fast(tacit_shared)

file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c)
if(cli_sources)
  add_executable(tacit ${cli_sources})
  target_link_libraries(tacit PRIVATE tacit_static)
  tacit_opens_fast(tacit)
endif()

if(TACIT_TESTS)
  include(TacitTests)
endif()
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/bench_*.c)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE bench_ "" parts ${name}) # bench/NAME/*.c belong to bench_NAME
  file(GLOB parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/${parts}/*.c)
  add_executable(${name} ${source} ${parts})
  target_link_libraries(${name} PRIVATE tacit_static tacit_bench_optional)
endforeach()
add_executable(calm ${CMAKE_SOURCE_DIR}/bench/calm.c) # asked by bench/models
target_link_libraries(calm PRIVATE tacit_static)
add_executable(bare ${CMAKE_SOURCE_DIR}/bench/bare.c) # asked by scripts/bench-decode
target_link_libraries(bare PRIVATE tacit_static)
include(TacitBenchPeers)
if(TACIT_FUZZ)
  include(TacitFuzz)
endif()
include(TacitInstall OPTIONAL)
