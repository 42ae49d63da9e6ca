"""The fixtures of tests that run Airflow."""

from tests.builders.airflow_environment import airflow, dags_test, environment
