"""`redrive doctor`: examines an installation, changes nothing, and says what is wrong, why it matters and what to do.

configuration    what the settings say, and contradict
surroundings     the data folder, its disk, RabbitMQ, the API
mail             the mail server
diagnose         these and store.examinations, one after the other, whatever becomes of each
"""
