-- analyse_new: see the function of that name in the migrations.
SELECT redrive.analyse_new() AS tables;
