# SPDX-License-Identifier: Apache-2.0
# Peers of the task benchmark: separate programs, each built only where its compiler and library
# are there, and never a reason for the build to fail.
set(peers ${CMAKE_SOURCE_DIR}/bench/peers)
set(peer_outputs)

# tacit_bench_peer(NAME COMPILER SOURCE FLAGS...)
function(tacit_bench_peer name compiler source)
  find_program(TACIT_PEER_${compiler} ${compiler})
  if(NOT TACIT_PEER_${compiler})
    return()
  endif()
  set(output ${CMAKE_BINARY_DIR}/peers/${name})
  string(REPLACE ";" " " flags "${ARGN}")
  add_custom_command(OUTPUT ${output}.stamp
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/peers
    COMMAND sh -c "${TACIT_PEER_${compiler}} -O2 -I${peers} ${peers}/${source} -o ${output} ${flags} >${output}.log 2>&1 || rm -f ${output}"
    COMMAND ${CMAKE_COMMAND} -E touch ${output}.stamp
    DEPENDS ${peers}/${source} ${peers}/task_shapes.h VERBATIM)
  set(peer_outputs ${peer_outputs} ${output}.stamp PARENT_SCOPE)
endfunction()

tacit_bench_peer(task_libgomp gcc task_omp.c -fopenmp)
tacit_bench_peer(task_libomp clang task_omp.c -fopenmp)
tacit_bench_peer(task_tbb g++ task_tbb.cpp -ltbb -lpthread)
add_custom_target(bench_peers DEPENDS ${peer_outputs})
if(TARGET bench_task)
  add_dependencies(bench_task bench_peers)
endif()
