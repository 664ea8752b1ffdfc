"""SQL Server: its dialect, and its driver by ODBC, which `store` alone imports."""
