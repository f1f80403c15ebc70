# magister_add_test(MODULE UNIT [NP 1 2 4 8] [MODULES module ...] [LABELS label ...] [TIMEOUT seconds])
#   builds tests/MODULE/UNIT_test.cpp against its module (and MODULES) and adds one CTest a rank count: "module/unit" or "module/unit/np4".
# magister_add_python_test(NAME SCRIPT [ARGS ...] [LABELS ...] [TIMEOUT seconds] [ENVIRONMENT name=value ...])
#   runs a Python script of the tests with the environment's interpreter; MAGISTER (the program), MAGISTER_SOURCE_DIR and
#   MAGISTER_BUILD_DIR are in its environment. Exit code 0 passes.
# A test that cannot run on this machine prints "skipped: <reason>" and ends with 77: scripts/test.sh counts it as skipped.
# Limits only end what hangs: ten times and more of what a test takes alone, since all cores may be busy with others.
# Tests run beside each other: threads of tiny products would wait for their place most of the time (distill took 1,201 s with four, 58 s alone).
set(MAGISTER_TEST_ENVIRONMENT OMP_NUM_THREADS=1)
set(MAGISTER_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root)

function(magister_add_test MODULE UNIT)
  cmake_parse_arguments(TEST "" "TIMEOUT" "NP;MODULES;LABELS" ${ARGN})
  set(target test_${MODULE}_${UNIT})
  add_executable(${target} ${CMAKE_CURRENT_SOURCE_DIR}/${UNIT}_test.cpp)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  set(libraries magister_${MODULE})
  foreach(module ${TEST_MODULES})
    list(APPEND libraries magister_${module})
  endforeach()
  if(TEST_NP)
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)
    target_link_libraries(${target} PRIVATE ${libraries} magister_parallel GTest::gtest)
  else()
    target_link_libraries(${target} PRIVATE ${libraries} GTest::gtest GTest::gtest_main)
  endif()
  get_target_property(pch magister_${MODULE} PRECOMPILE_HEADERS_REUSE_FROM)
  if(pch)
    target_precompile_headers(${target} REUSE_FROM magister_aten_pch)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 3000)
  endif()
  if(NOT TEST_NP)
    add_test(NAME ${MODULE}/${UNIT} COMMAND ${target})
    set_tests_properties(${MODULE}/${UNIT} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${MODULE};${TEST_LABELS}" SKIP_RETURN_CODE 77
      ENVIRONMENT ${MAGISTER_TEST_ENVIRONMENT})
  endif()
  foreach(np ${TEST_NP})
    add_test(NAME ${MODULE}/${UNIT}/np${np} COMMAND ${MAGISTER_MPIRUN} -np ${np} $<TARGET_FILE:${target}>)
    set_tests_properties(${MODULE}/${UNIT}/np${np} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${MODULE};${TEST_LABELS}"
      PROCESSORS ${np} SKIP_RETURN_CODE 77 ENVIRONMENT ${MAGISTER_TEST_ENVIRONMENT})
  endforeach()
endfunction()

function(magister_add_python_test NAME SCRIPT)
  cmake_parse_arguments(TEST "" "TIMEOUT" "ARGS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 6000)
  endif()
  add_test(NAME ${NAME} COMMAND ${MAGISTER_VENV}/bin/python ${CMAKE_CURRENT_SOURCE_DIR}/${SCRIPT} ${TEST_ARGS})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}" SKIP_RETURN_CODE 77
    ENVIRONMENT "${MAGISTER_TEST_ENVIRONMENT};MAGISTER=${CMAKE_BINARY_DIR}/magister;MAGISTER_SOURCE_DIR=${CMAKE_SOURCE_DIR};MAGISTER_BUILD_DIR=${CMAKE_BINARY_DIR};OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;${TEST_ENVIRONMENT}")
endfunction()
