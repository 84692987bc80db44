"""The file for `spark-submit` and for Kubernetes' Spark operator (rule S1); `tickwheel spark-submit` gives it too."""

from tickwheel.commands.spark_submit import main

if __name__ == "__main__":
    main()
