# magister_add_test(MODULE UNIT [NP 1 2 4 8] [LABELS label ...] [TIMEOUT seconds] [ALONE source ...])
#   puts tests/MODULE/UNIT_test.cpp into the program test_MODULE and adds one CTest a rank count: "module/unit" or "module/unit/np4", which runs the
#   tests of that file alone, in a process of its own. ALONE: in a program of its own, test_MODULE_UNIT, with these sources, for tests that bring
#   functions in the place of a library's. With MAGISTER_UNITY=OFF every file is such a program, and a change is linked to no other.
# magister_add_python_test(NAME SCRIPT [ARGS ...] [LABELS ...] [TIMEOUT seconds] [ENVIRONMENT name=value ...])
#   runs a Python script of the tests with the environment's interpreter; MAGISTER (the program), MAGISTER_SOURCE_DIR and
#   MAGISTER_BUILD_DIR are in its environment. Exit code 0 passes.
# A test that cannot run on this machine prints "skipped: <reason>" and ends with 77: scripts/test.sh counts it as skipped.
# Limits only end what hangs: ten times and more of what a test takes alone, since all cores may be busy with others.
# Tests run beside each other: threads of tiny products would wait for their place most of the time (distill took 1,201 s with four, 58 s alone).
set(MAGISTER_TEST_ENVIRONMENT OMP_NUM_THREADS=1)
set(MAGISTER_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root)

# A program that directs a module and computes nothing, without <ATen/ATen.h> in its files: compiled for a short build, as such files of modules are. Not for
# what repeats something many thousand times: of a template that a module has, too, the program takes this one.
function(magister_directs TARGET MODULE)
  target_compile_options(${TARGET} PRIVATE -Og)
  get_target_property(pch magister_${MODULE} PRECOMPILE_HEADERS_REUSE_FROM)
  if(pch)
    target_precompile_headers(${TARGET} REUSE_FROM magister_tensor_pch)
  endif()
endfunction()
set(MAGISTER_DIRECTING_TESTS app core run runtime)

# A program of tests: its files, compiled together, and main.
function(magister_test_program TARGET MODULE)
  add_executable(${TARGET} ${ARGN})
  target_include_directories(${TARGET} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${TARGET} PRIVATE magister_${MODULE} magister_parallel test_main GTest::gtest)
  get_target_property(pch magister_${MODULE} PRECOMPILE_HEADERS_REUSE_FROM)
  if(MODULE IN_LIST MAGISTER_DIRECTING_TESTS)
    magister_directs(${TARGET} ${MODULE})
  elseif(pch)
    target_precompile_headers(${TARGET} REUSE_FROM magister_aten_pch)
  endif()
endfunction()

# At the end of a folder's CMakeLists.txt: all its files are known.
function(magister_finish_tests MODULE)
  get_property(paths GLOBAL PROPERTY tests_of_${MODULE})
  compiled_together(files test_${MODULE} ${paths})
  magister_test_program(test_${MODULE} ${MODULE} ${files})
endfunction()

# The program that holds a test which was added.
function(magister_test_target OUT MODULE UNIT)
  set(target test_${MODULE})
  if(TARGET test_${MODULE}_${UNIT})
    set(target test_${MODULE}_${UNIT})
  endif()
  set(${OUT} ${target} PARENT_SCOPE)
endfunction()

function(magister_add_test MODULE UNIT)
  cmake_parse_arguments(TEST "" "TIMEOUT" "NP;LABELS;ALONE" ${ARGN})
  set(file ${UNIT}_test.cpp)
  if(NOT MAGISTER_UNITY OR TEST_ALONE)
    list(REMOVE_ITEM TEST_ALONE ${file})
    magister_test_program(test_${MODULE}_${UNIT} ${MODULE} ${file} ${TEST_ALONE})
  else()
    get_property(is_begun GLOBAL PROPERTY tests_of_${MODULE} SET)
    if(NOT is_begun)
      cmake_language(EVAL CODE "cmake_language(DEFER CALL magister_finish_tests ${MODULE})")  # what is deferred keeps its words, not their values
    endif()
    set_property(GLOBAL APPEND PROPERTY tests_of_${MODULE} ${MODULE}/${file})
  endif()
  magister_test_target(target ${MODULE} ${UNIT})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 3000)
  endif()
  set(properties TIMEOUT ${TEST_TIMEOUT} LABELS "${MODULE};${TEST_LABELS}" SKIP_RETURN_CODE 77 ENVIRONMENT ${MAGISTER_TEST_ENVIRONMENT})
  if(NOT TEST_NP)
    add_test(NAME ${MODULE}/${UNIT} COMMAND ${target} --file ${file})
    set_tests_properties(${MODULE}/${UNIT} PROPERTIES ${properties})
  endif()
  foreach(np ${TEST_NP})
    add_test(NAME ${MODULE}/${UNIT}/np${np} COMMAND ${MAGISTER_MPIRUN} -np ${np} ${CMAKE_CURRENT_BINARY_DIR}/${target} --file ${file} --mpi)
    set_tests_properties(${MODULE}/${UNIT}/np${np} PROPERTIES ${properties} PROCESSORS ${np})
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
